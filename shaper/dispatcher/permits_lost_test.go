package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// deaf is a hook that loses tickets on their way.
type deaf struct{ loses func(job string) bool }

func (d deaf) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d deaf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if sent, ok := cmd.(*redis.IntCmd); ok && cmd.Name() == "publish" && strings.HasPrefix(fmt.Sprint(cmd.Args()[1]), "tundish:answers:") {
			if job, _ := codec.ReadMessage(fmt.Sprint(cmd.Args()[2])); d.loses(job) {
				sent.SetVal(1)
				return nil
			}
		}
		return next(ctx, cmd)
	}
}

func (d deaf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestLostTickets loses tickets: the job gets the next slot, at the head of its queue. After the third one it is dropped and enqueued again.
func TestLostTickets(t *testing.T) {
	t.Parallel()
	for lost, want := range map[int32]struct {
		epoch  int64
		within time.Duration
	}{0: {1, 100 * time.Millisecond}, 1: {2, time.Second}, 2: {3, 2 * time.Second}, 3: {1, 4 * time.Second}} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newSelfDispatching(t, rig.Bucket("b", 100))
				var left atomic.Int32
				left.Store(lost)
				l.hook = func() redis.Hook { return deaf{func(string) bool { return left.Add(-1) >= 0 }} }
				l.dispatch(l.noWorker(), nil)
				s := l.sender()
				time.Sleep(time.Second) //nolint:forbidigo // in a bubble: no time passes
				began := time.Now()
				permit := must.Get(s.Acquire(t.Context(), l.job()))(t)
				if took := time.Since(began); permit.Attempt().Epoch != want.epoch || took > want.within {
					t.Errorf("epoch %d after %s, want %d within %s", permit.Attempt().Epoch, took, want.epoch, want.within)
				}
				permit.Settle(shaper.Done(200))
				l.wantEmpty()
			})
		})
	}
}

// TestTicketThatIsLostThreeTimes: the job that is enqueued again does not wait behind those that came after it.
func TestTicketThatIsLostThreeTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, others = 10, 100
		l := newSelfDispatching(t, rig.Bucket("b", rate))
		s := l.sender()
		var left atomic.Int32
		left.Store(ticketTries)
		l.hook = func() redis.Hook { return deaf{func(string) bool { return left.Add(-1) >= 0 }} }
		got := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			permit, err := s.Acquire(t.Context(), l.job())
			if err != nil {
				t.Error(err)
				return
			}
			got <- time.Since(began)
			permit.Settle(shaper.Done(200))
		}()
		synctest.Wait()
		for i := range others {
			must.Get(l.client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: fmt.Sprint("j", i), Payload: []byte("{}")}))(t)
		}
		l.dispatch(shaper.WorkerFunc(func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) }), nil)
		if took := <-got; took > 4*time.Second {
			t.Errorf("it got its permit after %s, with %d others behind it at %d/s", took, others, rate)
		}
		l.wantEmpty()
	})
}

// TestOneTicketInTenIsLost: nobody waits for longer than a second more than without losses. Each loss costs a slot. No job loses two tickets, which would cost
// it more, by chance: TestLostTickets has those.
func TestOneTicketInTenIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, jobs = 50, 400
		l := newSelfDispatching(t, rig.Bucket("b", rate))
		s := l.sender()
		var mu sync.Mutex
		published, lost := 0, map[string]bool{}
		l.hook = func() redis.Hook {
			return deaf{func(job string) bool {
				mu.Lock()
				defer mu.Unlock()
				if published++; published < 10*(len(lost)+1) || lost[job] {
					return false
				}
				lost[job] = true
				return true
			}}
		}
		var waits []time.Duration // in the order of the enqueues
		var clients sync.WaitGroup
		for range jobs {
			clients.Go(func() {
				mu.Lock()
				n := len(waits)
				waits = append(waits, 0)
				mu.Unlock()
				began := time.Now()
				permit, err := s.Acquire(t.Context(), l.job())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				waits[n] = time.Since(began)
				mu.Unlock()
				permit.Settle(shaper.Done(200))
			})
			synctest.Wait()
		}
		for range 2 {
			l.dispatch(l.noWorker(), nil)
		}
		clients.Wait()
		worst := time.Duration(0)
		for n, wait := range waits {
			due := time.Duration(n+len(lost)+1) * time.Second / rate
			worst = max(worst, wait-due)
		}
		t.Logf("%d of %d tickets were lost; a job waited %s more than its turn at most", len(lost), published, worst)
		if worst > time.Second || len(lost) < jobs/10 {
			t.Errorf("a job waited %s more, with %d losses", worst, len(lost))
		}
		l.wantEmpty()
	})
}

// TestTicketsOfTheDead has a process die whose jobs wait: they are dropped when their turn comes, and leave no dead letters.
func TestTicketsOfTheDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newSelfDispatching(t, rig.Bucket("b", 100))
		s := l.sender()
		for range 20 {
			if receipt, _, err := s.client.AwaitTicket(t.Context(), l.job()); err != nil || receipt.Refusal != nil {
				t.Fatal(receipt, err)
			}
		}
		s.client.Close()
		l.dispatch(l.noWorker(), nil)
		l.wantEmpty()
	})
}
