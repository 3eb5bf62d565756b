package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
)

// quotasOf is a patch that gives a flow, or a group, quotas of its own.
func quotasOf(t *testing.T, text string) operator.FlowPatch {
	t.Helper()
	var p operator.FlowPatch
	must.OK(t, p.Put(shaper.FlowQuotas, text))
	return p
}

// A flow, or a group, obeys quotas of its own from the change on: more, fewer, or none than all others have. What left before counts, so no window has more
// than the quota that was in force at its end. Receipts and jobs tell when a job leaves.
func TestQuotasOfOneFlow(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"flow", "flow in a group", "group"} {
		for _, all := range []string{"", "10/h"} {
			t.Run(fmt.Sprintf("%s beside %q", of, all), func(t *testing.T) {
				t.Parallel()
				b := rig.Grouped("b", 2)
				if of == "flow" {
					b = rig.Flowing("b", shaper.FlowKeyJob)
					b.Rate = rig.PerSecond(2)
				}
				b.Flow.Rate = admission.Rate{}
				if all != "" && of == "group" {
					b.Group.Quotas = []admission.Rate{rig.Rate(all)}
				} else if all != "" {
					b.Flow.Quotas = []admission.Rate{rig.Rate(all)}
				}
				var mu sync.Mutex
				sent := map[string][]time.Time{}
				worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
					mu.Lock()
					defer mu.Unlock()
					sent[a.Flow] = append(sent[a.Flow], time.Now())
					return shaper.Done(200)
				})
				inBubble(t, worker, []shaper.Bucket{b}, func(l *loops) {
					t := l.t
					ctx := t.Context()
					by := l.client.Op.As("anna").Bucket("b")
					set := func(text string) {
						t.Helper()
						var err error
						switch patch := quotasOf(t, text); of {
						case "flow":
							_, err = by.Flow("one").Set(ctx, patch)
						case "group":
							_, err = by.Group("one").Set(ctx, patch)
						default:
							_, err = by.Group("one").Flow("one").Set(ctx, patch)
						}
						must.OK(t, err)
					}
					count := func(flow string) int {
						mu.Lock()
						defer mu.Unlock()
						return len(sent[flow])
					}
					stop, cancel := context.WithCancel(ctx)
					ended := make(chan error, 1)
					go func() { ended <- l.d.Run(stop) }()
					defer func() { cancel(); <-ended }()
					<-time.After(time.Second)
					set("3/h")
					for i := range 200 {
						for _, name := range []string{"one", "other"} {
							l.enqueue(shaper.Job{Bucket: "b", ID: fmt.Sprint(name, i), Group: name, Flow: name, Payload: []byte("x")})
						}
					}
					<-time.After(10 * time.Minute)
					others := 200
					if all != "" {
						others = 10
					}
					if one, other := count("one"), count("other"); one != 3 || other != others {
						t.Fatalf("of 3/h there left %d, of %q %d", one, all, other)
					}
					info, err := l.client.Job(ctx, "b", "one5") // the third of the next three
					if wait := time.Until(info.ETA); err != nil || wait < 45*time.Minute || wait > 60*time.Minute {
						t.Errorf("the sixth job is expected in %s, %v", wait, err)
					}
					set("5/h")
					<-time.After(5 * time.Minute)
					must.Equal(t, count("one"), 5, "of 5/h there left")
					set("2/h")
					<-time.After(61*time.Minute + 12*time.Second - 16*time.Minute) // the first three are older than a window
					must.Equal(t, count("one"), 5, "lowered to 2/h there left")
					<-time.After(17 * time.Minute)
					must.Equal(t, count("one"), 7, "of 2/h there left")
					set("none")
					<-time.After(5 * time.Minute)
					must.Equal(t, count("one"), 200, "without a quota there left")
				})
			})
		}
	}
}

// The text that Redis keeps of a flow has its quotas behind its budgets, and each without the other.
func TestTextOfOwnQuotas(t *testing.T) {
	t.Parallel()
	for _, own := range []shaper.OwnFlow{
		{OwnBounds: shaper.OwnBounds{Quotas: shaper.Quotas{rig.Rate("1000/d"), rig.Rate("7/h")}}},
		{OwnBounds: shaper.OwnBounds{Quotas: shaper.Quotas{}, Budgets: shaper.Budgets{rig.Rate("9 tokens/m")}}},
	} {
		fields := codec.OwnFields(&own, map[shaper.FlowSetting]bool{shaper.FlowQuotas: true, shaper.FlowBudgets: true})
		text := "- - - - - - -\n-\n-\n-\n-\n" + fields[len(fields)-2] + "\n" + fields[len(fields)-1]
		read, err := codec.ParseOwnFlow(text)
		if err != nil || read.Quotas.String() != own.Quotas.String() || (read.Quotas == nil) != (own.Quotas == nil) || read.Budgets.String() != own.Budgets.String() {
			t.Errorf("%q reads as %s, %s: %v", text, read.Quotas, read.Budgets, err)
		}
	}
}
