package cli

import (
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// A server that listens everywhere is asked on this machine.
func TestReachable(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{":8080": "127.0.0.1:8080", "0.0.0.0:8080": "127.0.0.1:8080", "[::]:8080": "[::1]:8080", "127.0.0.1:1": "127.0.0.1:1", "10.0.0.5:1": "10.0.0.5:1", "host:1": "host:1", "bad": "bad"} {
		must.Equal(t, reachable(listen), want, "%q is asked at", listen)
	}
}
