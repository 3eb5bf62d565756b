package dispatcher

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// callSizes notes the largest call of each script, and refuses calls as a server does that takes fewer arguments than Redis.
type callSizes struct {
	most int // KEYS and ARGV; 0: no bound

	mu      sync.Mutex
	largest map[string]int
	refused int
}

type refusedForSize struct{}

func (refusedForSize) Error() string { return "ERR Protocol error: invalid multibulk length" }
func (refusedForSize) RedisError()   {}

func (s *callSizes) sees(cmd redis.Cmder) error {
	script := lua.ScriptOf(cmd)
	if script == nil {
		return nil
	}
	words := len(cmd.Args()) - 3 // the verb, the script, and how many keys
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most > 0 && words > s.most {
		s.refused++
		cmd.SetErr(refusedForSize{})
		return refusedForSize{}
	}
	s.largest[script.Name()] = max(s.largest[script.Name()], words)
	return nil
}

func (s *callSizes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *callSizes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := s.sees(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (s *callSizes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := s.sees(cmd); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// Each job has a flow, a group, a caller of its own, a callback and a result, and all end at one time: no call of a script has more than
// lua.MaxWords KEYS and ARGV. Where the server takes a third of that, what it refuses is halved, and all jobs end all the same.
func TestSizesOfCalls(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"redis": 0, "a server that takes fewer": lua.MaxWords / 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sizes := &callSizes{most: most, largest: map[string]int{}}
			endAtOnce(t, sizes, 900)
			var table strings.Builder
			for _, script := range slices.SortedFunc(maps.Keys(sizes.largest), func(a, b string) int { return cmp.Compare(sizes.largest[b], sizes.largest[a]) }) {
				fmt.Fprintf(&table, "\n%6d %s", sizes.largest[script], script)
				if sizes.largest[script] > lua.MaxWords {
					t.Errorf("script %s: a call has %d KEYS and ARGV, want at most %d", script, sizes.largest[script], lua.MaxWords)
				}
			}
			t.Logf("the largest calls, %d refused:%s", sizes.refused, &table)
			if most > 0 && sizes.refused == 0 {
				t.Error("no call was refused: the test shows nothing")
			}
		})
	}
}

// endAtOnce has jobs delivered that all end when the last one was sent: half of them are done, half become dead letters, and these are redriven.
func endAtOnce(t *testing.T, sizes *callSizes, jobs int) {
	t.Helper()
	pool := shaper.Pool{Name: "vendor", Rate: rig.PerSecond(20_000)}
	b, told := rig.Grouped("b", 20_000), rig.Bucket("told", 20_000)
	b.Pool, b.Weight, told.Shed = &pool, 1, shaper.NoShedding
	b.Capacity, b.MaxInFlight, b.Retry.MaxAttempts = 10_000, int64(2*jobs), 1
	b.Callbacks = shaper.Callbacks{Bucket: "told", Origins: []string{shaper.AnyOrigin}}
	b.Results = shaper.ResultSettings{Retention: time.Hour, Max: 10_000, Bytes: 64 << 20, MaxBody: 1000}
	for i := range 4 {
		b.Limits = append(b.Limits, admission.Limit{
			Name: "l" + strconv.Itoa(i), Limit: rig.RateOf(1000, time.Minute), Algorithm: admission.TokenBucket, Per: []string{admission.PerCaller}, MaxKeys: 10_000,
		})
	}
	w := rig.NewPoolWorld(t, b, told)
	conn := rig.Connect(t, w.Server.Addr())
	conn.AddHook(sizes)
	client := must.Get(producer.New(producer.Config{Redis: conn, Buckets: w.Buckets, Timeout: rig.Patience}))(t)
	t.Cleanup(client.Close)
	all := make([]shaper.Job, jobs)
	for i := range all {
		id := strconv.Itoa(i)
		all[i] = shaper.Job{Bucket: "b", ID: id, Flow: "flow" + id, Group: "group" + id, Payload: []byte("x"), CallbackURL: "http://127.0.0.1/told", Identity: admission.Identity{Caller: "caller" + id}}
	}
	receipts := must.Get(client.Enqueue(t.Context(), all...))(t)
	for _, r := range receipts {
		if r.Refusal != nil {
			t.Fatalf("job %s: %+v", r.ID, r.Refusal)
		}
	}
	var sent, ended sync.WaitGroup
	sent.Add(jobs)
	ended.Add(2 * jobs) // and what tells of them
	once := make([]sync.Once, jobs)
	worker := shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		i, err := strconv.Atoi(a.ID)
		if err != nil { // of the bucket that tells
			ended.Done()
			return shaper.Done(200)
		}
		once[i].Do(sent.Done)
		sent.Wait()
		defer ended.Done()
		if i%2 == 0 {
			return shaper.Dead("gone", fmt.Sprint("detail ", i))
		}
		out := shaper.Done(200)
		out.Answer = &shaper.Answer{Status: 200, Body: []byte(a.ID)}
		return out
	})
	d := must.Get(New(Config{Redis: conn, Buckets: w.Buckets, Workers: rig.Workers(w.Buckets, worker), Concurrency: 2 * jobs, Enqueue: client.Enqueue, Timeout: rig.Patience}))(t)
	ctx, stop := context.WithCancel(t.Context())
	running := make(chan error, 1)
	go func() { running <- d.Run(ctx) }()
	ended.Wait()
	op := must.Get(operator.New(operator.Config{Redis: conn, Buckets: w.Buckets, Timeout: rig.Patience}))(t)
	until(t, func() bool { // all have ended
		infos, err := op.BucketInfos(t.Context(), "b")
		return err == nil && infos[0].Unfinished == 0 && infos[0].InFlight == 0 && infos[0].Dead == int64(jobs/2)
	})
	stop()
	if err := <-running; err != nil {
		t.Error(err)
	}
	sum, err := op.As("test").Bucket("b").Dead().RedriveAll(t.Context(), jobs)
	if err != nil || sum.Moved != jobs/2 {
		t.Errorf("redriven: %+v, %v", sum, err)
	}
}
