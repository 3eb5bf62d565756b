package operator_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// leave has all jobs of some flows leave, as if they were done, and returns their ids.
func leave(t *testing.T, client *redis.Client, keys store.Keys, flows ...string) (ids []string) {
	t.Helper()
	for _, flow := range flows {
		some := client.LRange(t.Context(), keys.Queue(flow), 0, -1).Val()
		pipe := client.Pipeline()
		pipe.Del(t.Context(), keys.Queue(flow))
		pipe.HDel(t.Context(), keys.Flows(), flow)
		for _, id := range some {
			pipe.HDel(t.Context(), keys.Body(), id)
			pipe.HDel(t.Context(), keys.Meta(), id)
		}
		must.Get(pipe.Exec(t.Context()))(t)
		ids = append(ids, some...)
	}
	return ids
}

// dies has one more dead letter, of the flow a.
func dies(t *testing.T, client *redis.Client, keys store.Keys, id string) {
	t.Helper()
	pipe := client.Pipeline()
	pipe.HSet(t.Context(), keys.Body(), id, "1 1 00000000000cn001 {\"f\":\"a\"}\n1")
	pipe.HSet(t.Context(), keys.Meta(), id, "5 1 1 0 0 - ")
	pipe.ZAdd(t.Context(), keys.Dead(), redis.Z{Member: id, Score: float64(died.AddDate(0, 0, 1).UnixMicro())})
	must.Get(pipe.Exec(t.Context()))(t)
}

// What a filter means is redriven, the oldest first, as places become free: nine tenths of the bucket at a time, each once, none left
// out, and nothing else. Letters of jobs that died meanwhile stay.
func TestRedriveFound(t *testing.T) {
	t.Parallel()
	op, client, keys := graveyard(t, 100)
	dead := op.As("anna").Bucket("b").Dead()
	filter := operator.DeadFilter{Flow: named("a")}
	dry, err := dead.RedriveFound(t.Context(), filter, "", true)
	if err != nil || dry.Matched != 150 || dry.Looked != 450 || dry.Moved != 0 || dry.Next != "" || client.ZCard(t.Context(), keys.Dead()).Val() != 450 {
		t.Fatalf("a dry run: %+v, %v", dry, err)
	}
	var ids []string
	var sum operator.DeadChange
	for cursor, calls := "", 1; ; calls++ {
		change := must.Get(dead.RedriveFound(t.Context(), filter, cursor, false))(t)
		sum.Add(change.Redriven)
		sum.Matched, sum.Looked = sum.Matched+change.Matched, sum.Looked+change.Looked
		if cursor = change.Next; cursor == "" {
			break
		}
		if calls == 1 && (change.Moved != 90 || change.Full == 0 || !change.Waiting) {
			t.Fatalf("into 100 places: %+v", change)
		}
		again, err := dead.RedriveFound(t.Context(), filter, cursor, false)
		if err != nil || again.Moved != 0 || again.Next != cursor || !again.Waiting || again.Looked != 0 || again.Matched != 0 {
			t.Fatalf("without a place: %+v, %v", again, err)
		}
		ids = append(ids, leave(t, client, keys, "a")...)
		dies(t, client, keys, fmt.Sprint("later", calls))
	}
	ids = append(ids, leave(t, client, keys, "a")...)
	if sum.Moved != 150 || sum.Matched != 150 || sum.Looked != 450 {
		t.Errorf("in all %+v", sum)
	}
	if len(ids) != 150 || ids[0] != "j001" || ids[149] != "j448" || !slices.IsSorted(ids) {
		t.Errorf("%d were redriven: %v", len(ids), ids)
	}
	must.Equal(t, client.ZCard(t.Context(), keys.Dead()).Val(), 300+1, "are left")
	for _, cursor := range []string{"x", "1.2.3", "1.x.3.j", "1.2.3.j j", "1783228800000000.j001"} {
		if _, err := dead.RedriveFound(t.Context(), filter, cursor, false); !isInvalid(err) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

// A full flow holds up no other, and its letters come again in the next round: none is left out.
func TestRedriveFoundOfFullFlows(t *testing.T) {
	t.Parallel()
	op, client, keys := graveyard(t, 1000)
	must.OK(t, client.HSet(t.Context(), keys.Conf(), "flow_capacity", 40).Err())
	must.OK(t, client.HSet(t.Context(), keys.FlowSettings(), "b", "- - - - - - - 1783228800123456/gone\n-").Err())
	dead := op.As("anna").Bucket("b").Dead()
	var ids []string
	moved, rounds := 0, 0
	for cursor := ""; ; {
		change, err := dead.RedriveFound(t.Context(), operator.DeadFilter{}, cursor, false)
		if err != nil || change.Full > 0 {
			t.Fatalf("%+v, %v", change, err)
		}
		moved += change.Moved
		if cursor = change.Next; cursor == "" {
			break
		}
		if !change.Waiting {
			t.Fatalf("450 letters need one call a round: %+v", change)
		}
		if rounds++; rounds == 1 && (change.Moved != 72 || change.FlowFull != 300-72 || change.Disabled != 150) {
			t.Errorf("the first round: %+v", change)
		}
		ids = append(ids, leave(t, client, keys, "", "a")...)
	}
	ids = append(ids, leave(t, client, keys, "", "a")...)
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 300 || moved != 300 || rounds != 4 {
		t.Errorf("%d ids, %d moved in %d rounds and one", len(ids), moved, rounds)
	}
	must.Equal(t, client.ZCard(t.Context(), keys.Dead()).Val(), 150, "are left, want those of the disabled flow")
}

// An operator whose process does not have the bucket acts on its dead letters and jobs as one that has it.
func TestDeadOfABucketThatIsNotConfiguredHere(t *testing.T) {
	t.Parallel()
	_, client, _ := graveyard(t, 100)
	op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: client}))(t)
	bucket := op.As("anna").Bucket("b")
	dead := bucket.Dead()
	must.Equal(t, must.Get(dead.Redrive(t.Context(), "j001", "j002", "nosuch"))(t), (operator.Redriven{Moved: 2, Unknown: 1}), "redrive of ids")
	if some, err := dead.RedriveFound(t.Context(), operator.DeadFilter{Status: 501}, "", false); err != nil || some.Moved == 0 {
		t.Errorf("redrive of a filter: %+v, %v", some, err)
	}
	must.Equal(t, must.Get(bucket.Job("j001").Cancel(t.Context()))(t), shaper.StateCancelled, "cancel")
	if all, err := dead.RedriveAll(t.Context(), 1000); err != nil || all.Full == 0 {
		t.Errorf("redrive of all beyond the capacity: %+v, %v", all, err)
	}
	must.Equal(t, must.Get(dead.Drop(t.Context(), "j448"))(t), shaper.StateDropped, "drop")
	if dropped, err := dead.DropAll(t.Context()); err != nil || dropped == 0 {
		t.Errorf("drop of all: %d, %v", dropped, err)
	}
	for _, name := range []string{"nosuch", "No name", ""} {
		nothing := op.As("anna").Bucket(name)
		_, err := nothing.Dead().Redrive(t.Context(), "j")
		_, allErr := nothing.Dead().RedriveAll(t.Context(), 1)
		_, dropErr := nothing.Dead().DropAll(t.Context())
		_, jobErr := nothing.Job("j").Cancel(t.Context())
		for _, err := range []error{err, allErr, dropErr, jobErr} {
			if !errors.Is(err, shaper.ErrUnknownBucket) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}
