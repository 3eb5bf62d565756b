package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// health says with its exit code whether a server is ready, and why not.
func TestHealth(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	ready.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Error(r.URL)
		}
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("[-]redis failed: it gave no sign of life within 1s\n"))
		}
	}))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	for _, program := range []string{"dispatcher", "producer"} {
		ready.Store(true)
		_, port, _ := strings.Cut(at, ":")
		env := []string{"TUNDISH_" + strings.ToUpper(program) + "_LISTEN=:" + port, "TUNDISH_KEY=unused"}
		for _, args := range [][]string{{program, "health", "--address", at}, {program, "health", "--address", server.URL + "/"}} {
			runArgs(t.Context(), nil, "", args...).want(t, 0, "ready")
		}
		runArgs(t.Context(), env, "", program, "health").want(t, 1, "is beyond loopback", "key new ops --role admin")
		ready.Store(false)
		runArgs(t.Context(), nil, "", program, "health", "--address", at).want(t, 1, "not ready", "503", "it gave no sign of life")
		runArgs(t.Context(), nil, "", program, "health", "--address", "127.0.0.1:1").want(t, 1, "not ready", "does not answer")
		runArgs(t.Context(), nil, "", program, "health", "--address", "http://a b").want(t, 2, "no address")
	}
}
