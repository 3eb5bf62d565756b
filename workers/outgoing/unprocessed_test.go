package outgoing

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// The second request on the first connection fails by fault, and all others get a response.
func TestRequestsThatWereNotProcessed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    func(p *peer, stream uint32)
		ttl      time.Duration // of the permit
		result   shaper.Result
		reason   string
		signal   shaper.Signal
		requests int64 // in all, with the first
	}{
		"above the last stream id of a GOAWAY": {
			func(p *peer, stream uint32) { p.goAway(stream-2, http2.ErrCodeNo) }, time.Hour, shaper.ResultDone, "", shaper.SignalAccepted, 3,
		},
		"above the last stream id of the second GOAWAY": {
			func(p *peer, stream uint32) {
				p.goAway(1<<31-1, http2.ErrCodeNo)
				p.goAway(stream-2, http2.ErrCodeNo)
				p.hangUp()
			}, time.Hour, shaper.ResultDone, "", shaper.SignalAccepted, 3,
		},
		"above the last stream id of a GOAWAY with an error": {
			func(p *peer, stream uint32) { p.goAway(stream-2, http2.ErrCodeInternal) }, time.Hour, shaper.ResultDone, "", shaper.SignalAccepted, 3,
		},
		"REFUSED_STREAM": {
			func(p *peer, stream uint32) { p.reset(stream, http2.ErrCodeRefusedStream) }, time.Hour, shaper.ResultDone, "", shaper.SignalAccepted, 3,
		},
		"REFUSED_STREAM, and the permit is void by then": {
			func(p *peer, stream uint32) {
				sleep(time.Second)
				p.reset(stream, http2.ErrCodeRefusedStream)
			}, time.Second / 2, shaper.ResultReturned, workers.ReasonUnprocessed, shaper.SignalNone, 2,
		},
		"not above the last stream id": {
			func(p *peer, stream uint32) {
				p.goAway(stream, http2.ErrCodeNo)
				p.hangUp()
			}, time.Hour, shaper.ResultRetry, workers.ReasonConnection, shaper.SignalFailed, 2,
		},
		"INTERNAL_ERROR": {
			func(p *peer, stream uint32) { p.reset(stream, http2.ErrCodeInternal) }, time.Hour,
			shaper.ResultRetry, workers.ReasonConnection, shaper.SignalFailed, 2,
		},
		"ENHANCE_YOUR_CALM": {
			func(p *peer, stream uint32) { p.reset(stream, http2.ErrCodeEnhanceYourCalm) }, time.Hour,
			shaper.ResultRetry, workers.ReasonEnhanceYourCalm, shaper.SignalThrottled, 2,
		},
		"ENHANCE_YOUR_CALM of the connection": {
			func(p *peer, stream uint32) {
				p.goAway(stream, http2.ErrCodeEnhanceYourCalm)
				p.hangUp()
			}, time.Hour, shaper.ResultRetry, workers.ReasonEnhanceYourCalm, shaper.SignalThrottled, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSender(t, 8)
				defer s.Close()
				r := newReceiver(t, s, func(p *peer, stream uint32) {
					if p.number == 1 && stream == 3 {
						c.fault(p, stream)
						return
					}
					p.respond(stream)
				})
				var departures atomic.Int64
				want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
				got := attempt(t, s, c.ttl, &departures)
				want(t, got, c.result, c.reason)
				if got.Signal != c.signal || departures.Load() != 2 || r.requests() != c.requests {
					t.Errorf("signal %d of %+v, %d departures, %d requests: want signal %d, 2 departures, %d requests", got.Signal, got, departures.Load(), r.requests(), c.signal, c.requests)
				}
				want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
				if conns := r.conns(); len(conns) != 2 || conns[0].requests.Load() != 2 {
					t.Errorf("%d connections: want 2, and no further request on the first", len(conns))
				}
			})
		})
	}
}

// Requests that the receiver still processes end on the connection that it retires.
func TestRetiredConnectionEndsItsRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, 8)
		defer s.Close()
		r := newReceiver(t, s, func(p *peer, stream uint32) {
			switch {
			case p.number > 1, stream == 1:
				p.respond(stream)
			case stream == 7:
				p.goAway(5, http2.ErrCodeNo)
				time.AfterFunc(time.Second, func() { p.respond(3); p.respond(5) })
			}
		})
		var departures atomic.Int64
		want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
		ended := make(chan shaper.Outcome, 3)
		for range 3 {
			go func() { ended <- attempt(t, s, time.Hour, &departures) }()
			synctest.Wait()
		}
		want(t, <-ended, shaper.ResultDone, "")
		must.Equal(t, len(ended), 0, "a request that the receiver still has ended with the GOAWAY")
		want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
		want(t, <-ended, shaper.ResultDone, "")
		want(t, <-ended, shaper.ResultDone, "")
		if conns := r.conns(); len(conns) != 2 || conns[0].requests.Load() != 4 || conns[1].requests.Load() != 2 {
			t.Errorf("%d requests over %d connections, want 6 over 2", r.requests(), len(conns))
		}
	})
}

// A receiver that refuses every stream gets one stream for a permit, and its jobs do not come back for ever.
func TestReceiverThatRefusesEverything(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(p *peer, stream uint32){
		"REFUSED_STREAM":             func(p *peer, stream uint32) { p.reset(stream, http2.ErrCodeRefusedStream) },
		"GOAWAY":                     func(p *peer, _ uint32) { p.goAway(0, http2.ErrCodeNo) },
		"GOAWAY with PROTOCOL_ERROR": func(p *peer, _ uint32) { p.goAway(0, http2.ErrCodeProtocol) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSender(t, 8)
				defer s.Close()
				var healed atomic.Bool
				r := newReceiver(t, s, func(p *peer, stream uint32) {
					if healed.Load() {
						p.respond(stream)
						return
					}
					refuse(p, stream)
				})
				var departures atomic.Int64
				for i := range 40 { // 20 s
					got := attempt(t, s, time.Hour, &departures)
					if i <= 20 {
						want(t, got, shaper.ResultReturned, workers.ReasonUnprocessed)
					} else {
						want(t, got, shaper.ResultRetry, workers.ReasonConnection)
						must.Equal(t, got.Signal, shaper.SignalFailed, "signal")
					}
					sleep(500 * time.Millisecond)
				}
				must.Equal(t, r.requests(), 40, "40 permits were requests")
				healed.Store(true)
				want(t, attempt(t, s, time.Hour, &departures), shaper.ResultDone, "")
				healed.Store(false)
				want(t, attempt(t, s, time.Hour, &departures), shaper.ResultReturned, workers.ReasonUnprocessed)
			})
		})
	}
}
