package dispatcher

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/httpworker"
)

// A token is revoked before its file changes: no job dies, the bucket says why it is held, and each job is done once the file has the new token.
// A job has two attempts, and only the first one that is refused spends one.
func TestRevokedTokenHolds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("old")
	var refused, accepted atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer the new one" {
			refused.Add(1)
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		accepted.Add(1)
	}))
	t.Cleanup(api.Close)
	config := httpworker.DefaultConfig()
	config.BaseURL, config.AllowNetworks = api.URL, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	config.Auth.Bearer, config.Files.Bearer = "old", file
	sender := must.Get(httpworker.New(config))(t)
	t.Cleanup(sender.Close)

	b := rig.Bucket("b", 500)
	b.Retry.MaxAttempts, b.Adapt.MaxHold = 2, time.Minute
	w := rig.NewWorld(t, b)
	dispatch(w, shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		a.URL, a.Method = "/", http.MethodPost
		outcome := sender.Deliver(ctx, a)
		if outcome.Result == shaper.ResultDone {
			w.Note(ctx, a)
		}
		return outcome
	}), nil)
	const jobs = 20
	for i := range jobs {
		w.Submit("j" + string(rune('a'+i)))
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(rig.Patience); !is(); <-time.After(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not %s: %+v", what, w.Info())
			}
		}
	}
	until("held for its credentials", func() bool {
		down := w.Info().Downstream
		return down != nil && down.Reason == workers.ReasonCredentials
	})
	before := refused.Load()
	until("probed", func() bool { return refused.Load() > before })
	write("the new one")
	w.Await(jobs)
	w.AwaitEmpty()
	must.Equal(t, accepted.Load(), jobs, "jobs were accepted")
}
