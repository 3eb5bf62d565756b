package operator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// died is when the first dead letters of graveyard died.
var died = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// graveyard is a bucket with 450 dead letters: of three flows, by five causes, 150 of them in each of three seconds.
func graveyard(t *testing.T, capacity int64) (op *operator.Operator, client *redis.Client, keys store.Keys) {
	t.Helper()
	client = redistest.Start(t).Client()
	b := rig.Flowing("b", shaper.FlowKeyJob)
	b.Capacity, b.Shed = capacity, shaper.NoShedding
	op = must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: client, Buckets: []shaper.Bucket{b}}))(t)
	if _, err := op.As("anna").Bucket("b").Resume(t.Context()); err != nil { // it is configured then
		t.Fatal(err)
	}
	keys = store.BucketKeys("b")
	pipe := client.Pipeline()
	for i := range 450 {
		id, flow := fmt.Sprintf("j%03d", i), []string{"", "a", "b"}[i%3]
		last := shaper.LastResponse{
			Cause: shaper.Causes()[i%5], Reason: "http_500", Status: 500 + i%2, Detail: fmt.Sprintf("Detail %d", i), Body: "body",
		}
		pipe.HSet(t.Context(), keys.Body(), id, fmt.Sprintf("%d 1 00000000000cn001 {\"f\":%q}\n1", i, flow))
		pipe.HSet(t.Context(), keys.Meta(), id, "5 1 1 0 0 - "+last.String())
		pipe.ZAdd(t.Context(), keys.Dead(), redis.Z{Member: id, Score: float64(died.Add(time.Duration(i/150) * time.Second).UnixMicro())})
	}
	must.Get(pipe.Exec(t.Context()))(t)
	return op, client, keys
}

func named(flow string) *string { return &flow }

// A filter finds what it means, however small the pages are, and none is left out or comes twice.
func TestFindDead(t *testing.T) {
	t.Parallel()
	op, _, _ := graveyard(t, 1000)
	for name, c := range map[string]struct {
		filter operator.DeadFilter
		want   int
	}{
		"all":       {operator.DeadFilter{}, 450},
		"cause":     {operator.DeadFilter{Cause: shaper.CauseExpired}, 90},
		"flow":      {operator.DeadFilter{Flow: named("a")}, 150},
		"no flow":   {operator.DeadFilter{Flow: named("")}, 150},
		"status":    {operator.DeadFilter{Status: 501}, 225},
		"since":     {operator.DeadFilter{Since: died.Add(time.Second)}, 300},
		"until":     {operator.DeadFilter{Until: died.Add(time.Second)}, 150},
		"between":   {operator.DeadFilter{Since: died.Add(time.Second), Until: died.Add(2 * time.Second)}, 150},
		"id":        {operator.DeadFilter{Text: "J44"}, 10},
		"detail":    {operator.DeadFilter{Text: "detail 449"}, 1},
		"body":      {operator.DeadFilter{Text: "BODY"}, 450},
		"all of it": {operator.DeadFilter{Flow: named("a"), Status: 501, Cause: shaper.CausePermanent, Since: died.Add(2 * time.Second)}, 5},
		"nothing":   {operator.DeadFilter{Reason: "timeout"}, 0},
	} {
		for _, limit := range []int{1, 7, 200, 1000} {
			if limit == 1 && c.want > 50 {
				continue
			}
			var ids []string
			for cursor := ""; ; {
				page, err := op.Bucket("b").Dead().Find(t.Context(), c.filter, cursor, limit)
				if err != nil || len(page.DeadLetters) > limit {
					t.Fatalf("%s: %d letters, %v", name, len(page.DeadLetters), err)
				}
				for i := range page.DeadLetters {
					ids = append(ids, page.DeadLetters[i].ID)
				}
				if cursor = page.Next; cursor == "" {
					break
				}
			}
			if len(ids) != c.want || !slices.IsSortedFunc(ids, func(a, b string) int { return strings.Compare(b, a) }) {
				t.Errorf("%s, %d at a time: %d letters, want %d: %v", name, limit, len(ids), c.want, ids)
			}
		}
	}
}

func TestDropFound(t *testing.T) {
	t.Parallel()
	op, client, keys := graveyard(t, 100)
	dead := op.As("anna").Bucket("b").Dead()
	filter := operator.DeadFilter{Until: died.Add(time.Second)}
	if dry, err := dead.DropFound(t.Context(), filter, "", true); err != nil || dry.Matched != 150 || dry.Dropped != 0 {
		t.Errorf("a dry run: %+v, %v", dry, err)
	}
	change, err := dead.DropFound(t.Context(), filter, "", false)
	if err != nil || change.Dropped != 150 || change.Next != "" || client.ZCard(t.Context(), keys.Dead()).Val() != 300 {
		t.Errorf("%+v, %v", change, err)
	}
	if again, err := dead.DropFound(t.Context(), filter, "", false); err != nil || again.Matched != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
}

func TestBadDeadFilters(t *testing.T) {
	t.Parallel()
	op, _, _ := graveyard(t, 100)
	for name, c := range map[string]struct {
		filter operator.DeadFilter
		cursor string
	}{
		"cause":  {operator.DeadFilter{Cause: "bad luck"}, ""},
		"status": {operator.DeadFilter{Status: 42}, ""},
		"times":  {operator.DeadFilter{Since: died, Until: died}, ""},
		"cursor": {operator.DeadFilter{}, "x"},
		"id":     {operator.DeadFilter{}, "1.a b"},
	} {
		_, err := op.Bucket("b").Dead().Find(t.Context(), c.filter, c.cursor, 1)
		if _, ok := errors.AsType[*operator.InvalidChangeError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
