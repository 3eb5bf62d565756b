package outgoing

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// sleep lets virtual time pass.
func sleep(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // in a bubble: no time passes

// patient makes a sender whose attempts may take as long as those of a language model.
func patient(t *testing.T, s *Sender) *Sender {
	t.Helper()
	s.config.Timeout = MaxTimeout
	return s
}

// A connection that freezes costs the departures of 3 s, however long the timeout is. They fail long before it, as one fault.
func TestFrozenConnection(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"of a webhook": 15 * time.Second, "of a language model": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSender(t, 256)
				s.config.Timeout = timeout
				defer s.Close()
				r := newReceiver(t, s, func(p *peer, stream uint32) { p.respond(stream) })
				var departures, done, lost, signals atomic.Int64
				var senders sync.WaitGroup
				const perSecond = 20
				for i := range 60 * perSecond {
					if i == 10*perSecond {
						r.conns()[0].frozen.Store(true)
					}
					senders.Go(func() {
						began := time.Now()
						got := attempt(t, s, time.Hour, &departures)
						if got.Result == shaper.ResultDone {
							done.Add(1)
							return
						}
						lost.Add(1)
						if took := time.Since(began); got.Result != shaper.ResultRetry || took > 18*time.Second {
							t.Errorf("after %s: %+v", took, got)
						}
						if got.Signal == shaper.SignalFailed {
							signals.Add(1)
						}
					})
					sleep(time.Second / perSecond)
				}
				senders.Wait()
				if lost.Load() < 2*perSecond || lost.Load() > 3.5*perSecond || done.Load()+lost.Load() != 60*perSecond {
					t.Errorf("%d lost and %d done of %d: want the departures of 3 s lost", lost.Load(), done.Load(), 60*perSecond)
				}
				must.Equal(t, signals.Load(), 1, "failures are reported for one fault")
				if conns := len(r.conns()); conns > 3 {
					t.Errorf("%d connections", conns)
				}
			})
		})
	}
}

// A receiver that takes its time and answers PING is not cut off, and its connection stays in use.
func TestSlowReceiverIsNotCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := patient(t, newSender(t, 8))
		defer s.Close()
		r := newReceiver(t, s, func(p *peer, stream uint32) {
			if stream == 3 {
				time.AfterFunc(14*time.Minute, func() { p.respond(stream) })
				return
			}
			p.respond(stream)
		})
		var departures atomic.Int64
		want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
		slow := make(chan shaper.Outcome, 1)
		go func() { slow <- attempt(t, s, time.Hour, &departures) }()
		for range 12 {
			sleep(time.Minute)
			want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
		}
		want(t, <-slow, shaper.ResultDone, "")
		must.Equal(t, len(r.conns()), 1, "connections")
	})
}

// An idle connection that froze gets no request.
func TestFrozenIdleConnectionGetsNoRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, 8)
		defer s.Close()
		r := newReceiver(t, s, func(p *peer, stream uint32) { p.respond(stream) })
		var departures atomic.Int64
		want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
		r.conns()[0].frozen.Store(true)
		sleep(5 * time.Second)
		want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
		if conns := r.conns(); len(conns) != 2 || conns[0].requests.Load() != 1 {
			t.Errorf("%d connections: want 2, and 1 request on the first", len(conns))
		}
	})
}

// Requests that the receiver lets time out one by one, and answers PING, are a failure each.
func TestEveryTimeoutOfALivingConnectionIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, 8)
		defer s.Close()
		newReceiver(t, s, func(p *peer, stream uint32) {
			if stream == 1 {
				p.respond(stream)
			}
		})
		var departures atomic.Int64
		want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
		var senders sync.WaitGroup
		for range 5 {
			senders.Go(func() {
				got := attempt(t, s, time.Hour, &departures)
				want(t, got, shaper.ResultRetry, workers.ReasonTimeout)
				must.Equal(t, got.Signal, shaper.SignalFailed, "signal")
			})
		}
		senders.Wait()
	})
}

// A connection takes no request beyond its maximum age, and ends its requests.
func TestConnectionMaxAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := patient(t, newSender(t, 8))
		s.conns.maxAge = 5 * time.Minute
		defer s.Close()
		r := newReceiver(t, s, func(p *peer, stream uint32) {
			if age := time.Since(p.began); age > 5*time.Minute {
				t.Errorf("a connection of %s got a request", age)
			}
			if p.number == 1 && stream == 3 {
				time.AfterFunc(12*time.Minute, func() { p.respond(stream) })
				return
			}
			p.respond(stream)
		})
		var departures atomic.Int64
		want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
		long := make(chan shaper.Outcome, 1)
		go func() { long <- attempt(t, s, time.Hour, &departures) }()
		for range 20 * 20 {
			sleep(3 * time.Second)
			want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
		}
		want(t, <-long, shaper.ResultDone, "")
		conns := r.conns()
		if len(conns) < 4 || len(conns) > 5 {
			t.Errorf("%d connections in 20 minutes, want one for 4.5 to 5", len(conns))
		}
		for _, p := range conns[:len(conns)-1] {
			if !p.closed.Load() {
				t.Errorf("connection %d is open", p.number)
			}
		}
	})
}

// Of HTTP/1 too, and an idle connection closes at that age.
func TestIdleConnectionClosesAtItsMaximumAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, 8)
		s.conns.maxAge = 10 * time.Second
		var open atomic.Int64
		dialPipes(s, func(conn net.Conn) {
			open.Add(1)
			defer open.Add(-1)
			serveNoContent(conn)
		})
		for range 30 {
			want(t, send(t, s, "http://example.com/"), shaper.ResultDone, "")
			sleep(time.Second)
		}
		sleep(10 * time.Second)
		synctest.Wait()
		if kept, _ := s.Kept(); open.Load() != 0 || kept != 0 {
			t.Errorf("%d connections are open, %d are kept", open.Load(), kept)
		}
	})
}
