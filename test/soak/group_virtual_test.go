//go:build soak

package soak

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/test/harness"
)

// inBubble runs a test in time that passes only when all sleep, on an embedded store in the same time.
func inBubble(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mini := miniredis.NewMiniRedis()
		mini.ClockTTL(true)
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", MaxRetries: -1, DisableIdentity: true, Protocol: 2,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return redistest.WithRoom(mini.Dial()) },
		})
		test(t, client)
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		mini.Close()
	})
}

// TestSenderForHalfAnHour is TestSenderWithClients for as long as the small clients come again each minute,
// in time that does not pass while anybody works: what departs is held to its rates exactly.
func TestSenderForHalfAnHour(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute of a processor")
	}
	const minutes, each = 30, 3
	inBubble(t, func(t *testing.T, client redis.UniversalClient) {
		b := shaper.DefaultBucket()
		flow, group := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
		flow.Key, flow.Rate = shaper.FlowKeyJob, rateOf(t, "6/s")
		group.Key, group.Rate = shaper.FlowKeyJob, rateOf(t, "1000/m")
		b.Name, b.Rate, b.Capacity = harness.BucketName, rateOf(t, "3000/m"), 2*bigBacklog
		b.Flow, b.Group = &flow, &group
		b.DedupeWindow = 0 // what is remembered of settled jobs makes the embedded store slow
		buckets := []shaper.Bucket{b}
		enqueuer, err := producer.New(producer.Config{Redis: client, Buckets: buckets})
		if err != nil {
			t.Fatal(err)
		}
		var a harness.ArrivalLog
		dispatcher, err := dispatcher.New(dispatcher.Config{
			Redis: client, Buckets: buckets,
			Workers: map[string]shaper.Worker{harness.BucketName: shaper.WorkerFunc(func(_ context.Context, attempt *shaper.Attempt) shaper.Outcome {
				a.Respond(nil, nil, attempt.ID, attempt.Number)
				return shaper.Done(http.StatusOK)
			})},
		})
		if err != nil {
			t.Fatal(err)
		}
		enqueue := func(group string, number, first, count int) {
			t.Helper()
			jobs := make([]shaper.Job, count)
			for i := range jobs {
				name := fmt.Sprintf("%s_%d", group, number)
				jobs[i] = shaper.Job{Bucket: harness.BucketName, ID: fmt.Sprintf("%s-%d", name, first+i), Group: group, Flow: name, Payload: []byte("{}")}
			}
			receipts, err := enqueuer.Enqueue(t.Context(), jobs...)
			if err != nil {
				t.Fatal(err)
			}
			for _, receipt := range receipts {
				if receipt.Refusal != nil {
					t.Fatal(receipt.Refusal.Detail)
				}
			}
		}
		began := time.Now()
		for n := range bigNumbers {
			enqueue("big", n, 0, bigBacklog/bigNumbers)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- dispatcher.Run(ctx) }()
		longest := time.Duration(0)
		for minute := range minutes {
			posted := time.Now()
			for i := range smallClients {
				for n := range each {
					enqueue(clientName(i), n, minute, 1)
				}
			}
			<-time.After(time.Until(began.Add(time.Duration(minute+1) * time.Minute)))
			groups := a.ByGroup()
			for i := range smallClients {
				times := between(groups[clientName(i)], posted, time.Now())
				if len(times) != each {
					t.Fatalf("minute %d: %d of %d jobs of a client left", minute, len(times), each)
				}
				longest = max(longest, times[each-1].Sub(posted))
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		groups := a.ByGroup()
		who, worst := mostAhead(groups, clientRate)
		number, ofNumber := mostAhead(a.ByFlow(), numberRate)
		all := harness.Ahead(a.All(), senderRate)
		t.Logf("%d left in %d minutes, %d of the big client; ahead in the worst window: the bucket %s, client %s %s, number %s %s; %d jobs of a small client took %s at most, %d rounds are %s",
			len(a.All()), minutes, len(groups["big"]), all, who, worst, number, ofNumber, each, longest, each+1, (each+1)*senderRound)
		if most := max(all, worst, ofNumber); most > time.Microsecond { // slots are whole microseconds
			t.Errorf("some window has more in it than its rate explains: ahead by %s", most)
		}
		if longest > (each+1)*senderRound {
			t.Errorf("the small clients were through after %s, want %s", longest, (each+1)*senderRound)
		}
		// Each minute but for the rounds that the small clients take.
		if want := int(.98 * clientRate * minutes * (time.Minute - (each+1)*senderRound).Seconds()); len(groups["big"]) < want {
			t.Errorf("%d of the big client left, want %d", len(groups["big"]), want)
		}
	})
}

func rateOf(t *testing.T, text string) admission.Rate {
	t.Helper()
	rate, err := admission.ParseRate(text)
	if err != nil {
		t.Fatal(err)
	}
	return rate
}
