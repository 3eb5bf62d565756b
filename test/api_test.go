//go:build soak

package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// TestAPI: three dispatchers call an API with OAuth and a quota. Each fetches one token at most, the API sees its quota in any
// window and at most 1 % above, as the way there takes longer for some, and every call is answered.
func TestAPI(t *testing.T) {
	const rate, calls, quota, window = 200, 2000, 1000, 10 * time.Second
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		var mu sync.Mutex
		var tokens, wrong int
		auth := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			tokens++
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":3600}`, tokens)
		}))
		t.Cleanup(auth.Close)
		s := start(t, redistest.Start(t), plan{
			rate: rate, dispatchers: 3, bucket: fmt.Sprintf("quotas = [\"%d/%s\", \"100000/d\"]", quota, window),
			api: fmt.Sprintf("auth.oauth2 = {token_url = %q, client_id = \"id\", client_secret = \"s\"}", auth.URL),
			respond: func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
				mu.Lock()
				defer mu.Unlock()
				if r.Method != http.MethodGet || r.URL.Path == "/" || len(r.Header.Get("Authorization")) != len("Bearer tN") {
					wrong++
					w.WriteHeader(http.StatusBadRequest)
				}
			}})
		lines := make([]string, calls)
		for i := range lines {
			lines[i] = fmt.Sprintf(`{"id":"call-%d","method":"GET","path":"customers/%d"}`, i, i)
		}
		s.postLines(lines)
		await(t, 60*time.Second, "all calls are answered", func() bool { return s.unfinished() == 0 })
		r := s.history.Check()
		report(t, rate, r)
		mu.Lock()
		defer mu.Unlock()
		t.Logf("%d tokens for %d calls by 3 dispatchers; most in %s: %d", tokens, calls, window, r.MostIn(window))
		if len(r.Lost) > 0 || len(r.Duplicated) > 0 || wrong > 0 {
			t.Fatalf("lost %v, twice %v, %d were not as they should be", r.Lost, r.Duplicated, wrong)
		}
		if tokens > 3 {
			t.Errorf("%d tokens", tokens)
		}
		if most := r.MostIn(window); most > quota+quota/100 { // what the way to the receiver takes differs
			return fmt.Sprintf("%d calls in %s, the quota is %d", most, window, quota)
		}
		return stall.crowded(r.MostIn, rate, steady, time.Second, 100*time.Millisecond)
	})
}
