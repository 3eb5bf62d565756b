package cli

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
)

// A command that talks to Redis by itself waits longer for a reply than a daemon of the same configuration, which failed on a busy machine.
func TestCommandsWaitLongerForRedisThanDaemons(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[string]time.Duration{"100ms": commandPatience, "1s": commandPatience} {
		path := filepath.Join(t.TempDir(), "config.toml")
		must.OK(t, os.WriteFile(path, []byte("redis = { url = \"redis://127.0.0.1:1\", timeout = \""+timeout+"\" }\n"), 0o600))
		a := &invocation{configPath: path}
		s := must.Get(a.open())(t)
		defer s.close()
		if got := s.redis.(*redis.Client).Options().ReadTimeout; got != want || s.config.CallTimeout() < want {
			t.Errorf("redis.timeout = %s: a reply is waited for %s, a call %s, want %s", timeout, got, s.config.CallTimeout(), want)
		}
	}
}
