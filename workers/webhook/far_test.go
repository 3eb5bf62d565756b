package webhook

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
)

// farReceiver is a receiver of which each round trip takes so long, that of the TCP handshake too.
type farReceiver struct {
	*httptest.Server

	address  string // that the worker reaches it by
	arrivals checker.History
	conns    atomic.Int64
	count    atomic.Int64
	all      chan struct{} // closed when so many as wanted have arrived
}

// newFarReceiver starts a receiver, with TLS if http2 or tls is set. closes: it closes each connection after its response.
func newFarReceiver(t *testing.T, trip time.Duration, isTLS, http2, closes bool, wanted int) *farReceiver {
	t.Helper()
	f := &farReceiver{all: make(chan struct{})}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.arrivals.Delivered(r.Header.Get("Webhook-Id"), 1, time.Now())
		if closes {
			w.Header().Set("Connection", "close")
		}
		w.WriteHeader(http.StatusNoContent)
		if f.count.Add(1) == int64(wanted) {
			close(f.all)
		}
	}))
	f.EnableHTTP2 = http2
	f.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			f.conns.Add(1)
		}
	}
	if isTLS {
		f.StartTLS()
	} else {
		f.Start()
	}
	t.Cleanup(f.Close)
	proxy := must.Get(faultproxy.New(f.Listener.Addr().String()))(t)
	t.Cleanup(func() { _ = proxy.Close() })
	proxy.SetDelay(trip)
	f.address = proxy.Addr()
	return f
}

// reachedBy has a worker reach the receiver under every name. The TCP handshake takes handshake.
func (f *farReceiver) reachedBy(w *Worker, handshake time.Duration) {
	transport := w.sender.Transport()
	far := func(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, _ string) (net.Conn, error) {
			select {
			case <-time.After(handshake):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return dial(ctx, network, f.address)
		}
	}
	transport.DialContext, transport.DialTLSContext = far(transport.DialContext), far(transport.DialTLSContext)
	if f.TLS != nil {
		trust(w, f.Server)
	}
}

// delivers has a dispatcher deliver jobs until the receiver has them all, or for so long.
func (f *farReceiver) delivers(t *testing.T, b shaper.Bucket, w shaper.Worker, jobs []shaper.Job, within time.Duration) {
	t.Helper()
	conn := redistest.Start(t).Client()
	client := must.Get(producer.New(producer.Config{Redis: conn, Buckets: []shaper.Bucket{b}}))(t)
	must.Get(client.Enqueue(t.Context(), jobs...))(t)
	d := must.Get(dispatcher.New(dispatcher.Config{Redis: conn, Buckets: []shaper.Bucket{b}, Workers: map[string]shaper.Worker{b.Name: w}}))(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-f.all:
	case <-time.After(within):
	}
	stop()
	running.Wait()
}

// TestFarReceivers: receivers get the rate, evenly, however far they are, whether they keep connections or not, over HTTP/1.1 and HTTP/2. A row is
// printed for each. What a busy machine costs, near receivers lose too: far ones are compared with them.
func TestFarReceivers(t *testing.T) {
	trips, rate, length := []time.Duration{0, 160 * time.Millisecond}, 20, 2*time.Second
	if redistest.Soak {
		trips, rate, length = []time.Duration{0, 50 * time.Millisecond, 160 * time.Millisecond, 400 * time.Millisecond}, 10, 30*time.Second
	}
	var mu sync.Mutex
	slowest := map[time.Duration]float64{} // of the rows of a round trip
	t.Run("rows", func(t *testing.T) {
		for _, trip := range trips {
			for _, http2 := range []bool{false, true} {
				for _, closes := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, HTTP/2 %t, closes %t", trip, http2, closes), func(t *testing.T) {
						t.Parallel()
						got := farRow(t, trip, http2, closes, rate, length)
						mu.Lock()
						defer mu.Unlock()
						if before, ok := slowest[trip]; !ok || got < before {
							slowest[trip] = got
						}
					})
				}
			}
		}
	})
	least := .65 // in 2 s a stall of the machine costs as much
	if redistest.Soak {
		least = .9
	}
	for _, trip := range trips[1:] {
		if near := slowest[0]; slowest[trip] < least*near {
			t.Errorf("%s away: %.2f/s, and %.2f/s near", trip, slowest[trip], near)
		}
	}
}

// farRow delivers jobs to a receiver that is a round trip away, and returns the rate of their arrivals.
func farRow(t *testing.T, trip time.Duration, http2, closes bool, rate int, length time.Duration) float64 {
	n := int(float64(rate) * length.Seconds())
	f := newFarReceiver(t, trip, true, http2, closes, n)
	w := newWorker(t, nil)
	f.reachedBy(w, trip)
	b := shaper.DefaultBucket()
	b.Name, b.Burst, b.Rate = "far", 1, admission.Rate{Count: int64(rate), Per: time.Second, Unit: admission.UnitRequests}
	jobs := make([]shaper.Job, n)
	for i := range jobs {
		jobs[i] = shaper.Job{Bucket: b.Name, ID: fmt.Sprint("j", i), URL: f.URL, Payload: []byte("{}")}
	}
	f.delivers(t, b, w, jobs, 5*length)
	r := f.arrivals.Check()
	t.Logf("%6s  HTTP/2 %-5t closes %-5t: %d of %d at %.2f/s (want %d), most in 1s %d, in 100ms %d, connections %d",
		trip, http2, closes, f.count.Load(), n, r.Rate, rate, r.MostIn(time.Second), r.MostIn(100*time.Millisecond), f.conns.Load())
	if int(f.count.Load()) != n || r.Rate > float64(rate)*1.2 {
		t.Errorf("%d of %d arrived, at %.2f/s", f.count.Load(), n, r.Rate)
	}
	return r.Rate
}

// TestFarQuota: a far receiver that closes each connection gets its quota in one window: its distance brings no permit back. What a busy machine costs,
// a near receiver loses too.
func TestFarQuota(t *testing.T) {
	t.Parallel()
	const quota, window = 20, 10 * time.Second
	var near, far int
	t.Run("rows", func(t *testing.T) {
		for trip, got := range map[time.Duration]*int{0: &near, 160 * time.Millisecond: &far} {
			t.Run(trip.String(), func(t *testing.T) {
				t.Parallel()
				*got = farQuota(t, trip, quota, window)
			})
		}
	})
	t.Logf("of %d in one window: near %d, far %d", quota, near, far)
	if far < quota/2+1 || 10*far < 8*near { // where distance costs permits it gets half
		t.Errorf("%d of %d in one window, and %d near", far, quota, near)
	}
}

// farQuota delivers as many jobs as a quota allows to a receiver that is a round trip away, and returns how many of them arrived in one window.
func farQuota(t *testing.T, trip time.Duration, quota int, window time.Duration) int {
	f := newFarReceiver(t, trip, true, false, true, quota)
	w := newWorker(t, nil)
	f.reachedBy(w, trip)
	b := shaper.DefaultBucket()
	b.Name, b.Burst, b.Rate = "quota", 1, admission.Rate{Count: 50, Per: time.Second, Unit: admission.UnitRequests}
	b.Quotas = []admission.Rate{{Count: int64(quota), Per: window, Unit: admission.UnitRequests}}
	jobs := make([]shaper.Job, quota)
	for i := range jobs {
		jobs[i] = shaper.Job{Bucket: b.Name, ID: fmt.Sprint("j", i), URL: f.URL, Payload: []byte("{}")}
	}
	f.delivers(t, b, w, jobs, 3*window)
	return f.arrivals.Check().MostIn(window)
}

// TestFarHosts: each of many far hosts gets its job in its flow's first turn, however long it is until the second one.
func TestFarHosts(t *testing.T) {
	t.Parallel()
	hosts, rate := 40, int64(40)
	if redistest.Soak {
		hosts, rate = 400, 10
	}
	const connect = 320 * time.Millisecond
	f := newFarReceiver(t, 0, false, false, false, hosts)
	w := newWorker(t, nil)
	f.reachedBy(w, connect)
	b := shaper.DefaultBucket()
	b.Name, b.Burst, b.Rate = "hosts", 1, admission.Rate{Count: rate, Per: time.Second, Unit: admission.UnitRequests}
	flows := shaper.DefaultFlowSettings()
	flows.Key, flows.Rate = shaper.FlowKeyHost, admission.Rate{Count: 100, Per: time.Hour, Unit: admission.UnitRequests}
	b.Flow = &flows
	jobs := make([]shaper.Job, hosts)
	for i := range jobs {
		jobs[i] = shaper.Job{Bucket: b.Name, ID: fmt.Sprint("j", i), URL: fmt.Sprintf("http://h%d.example.com/", i), Payload: []byte("{}")}
	}
	begun := time.Now()
	const turn = 36 * time.Second // until the second one of a flow: where the machine is so busy that a host misses its first, it gets its job then
	f.delivers(t, b, w, jobs, 30*time.Second+2*time.Duration(hosts)*time.Second/time.Duration(rate)+2*turn)
	r := f.arrivals.Check()
	first := r.MostIn(turn)
	t.Logf("%d of %d hosts in %s; most in one turn %d, in 1s %d, in 100ms %d", f.count.Load(), hosts, time.Since(begun), first, r.MostIn(time.Second), r.MostIn(100*time.Millisecond))
	// Where a connection is lost between turns, none of them has it, in any turn.
	if int(f.count.Load()) != hosts || first < hosts/2 {
		t.Errorf("%d of %d hosts have their job", f.count.Load(), hosts)
	}
}
