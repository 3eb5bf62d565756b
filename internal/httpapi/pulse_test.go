package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
)

// pinged counts its PINGs, which take a time.
type pinged struct {
	httpapi.Jobs
	takes time.Duration
	dead  atomic.Bool
	count atomic.Int64
}

func (p *pinged) Probe(ctx context.Context) error {
	p.count.Add(1)
	select {
	case <-time.After(p.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.dead.Load() {
		return errors.New("dead")
	}
	return nil
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // no time passes

// /readyz needs no key: however often it is asked, Redis is pinged once in 200 ms.
func TestReadyzSparesRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &pinged{takes: 10 * time.Millisecond}
		handler := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store})
		readyz := func(ctx context.Context) int {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/readyz", http.NoBody)
			r.RemoteAddr = "127.0.0.1:1"
			handler.ServeHTTP(w, r)
			return w.Code
		}
		var ready, away atomic.Int64
		storm := func(n int) {
			for range n {
				go func() {
					if readyz(t.Context()) == http.StatusOK {
						ready.Add(1)
					} else {
						away.Add(1)
					}
				}()
			}
		}
		storm(1000)
		pass(11 * time.Millisecond)
		synctest.Wait()
		storm(1000)
		synctest.Wait()
		if got := store.count.Load(); got != 1 || ready.Load() != 2000 {
			t.Errorf("%d PINGs for 2000 questions at once, %d ready", got, ready.Load())
		}
		for range 100 { // in a second of time
			pass(10 * time.Millisecond)
			readyz(t.Context())
		}
		if got := store.count.Load(); got > 6 {
			t.Errorf("%d PINGs in a second, want at most one in 200 ms", got)
		}

		// What Redis says later is seen, and a client that hung up says nothing of Redis.
		store.dead.Store(true)
		pass(200 * time.Millisecond)
		must.Equal(t, readyz(t.Context()), http.StatusServiceUnavailable, "without Redis")
		store.dead.Store(false)
		pass(200 * time.Millisecond)
		gone, cancel := context.WithCancel(t.Context())
		go readyz(gone)
		synctest.Wait()
		cancel()
		must.Equal(t, readyz(t.Context()), http.StatusOK, "after another client hung up")

		// A Redis that hangs costs nobody more than a second.
		store.takes = time.Hour
		pass(time.Second)
		away.Store(0)
		before := time.Now()
		storm(10)
		pass(2 * time.Second)
		synctest.Wait()
		if away.Load() != 10 || store.count.Load() > 10 {
			t.Errorf("%d of 10 were answered after %s, %d PINGs", away.Load(), time.Since(before), store.count.Load())
		}
	})
}

// A scrape that fails is a line of the log, and not one for each metric or each try.
func TestFailedScrapesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	failing := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("broken pipe") })
	handler := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: &pinged{}, Metrics: failing, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/metrics", http.NoBody)
		r.RemoteAddr = "127.0.0.1:1"
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	must.Equal(t, strings.Count(log.String(), "broken pipe"), 1, "lines:\n%s", &log)
}
