package cli

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A command that talks to Redis by itself waits longer for a reply than a daemon of the same configuration, which failed on a busy machine.
func TestCommandsWaitLongerForRedisThanDaemons(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[string]time.Duration{"100ms": commandPatience, "1s": commandPatience} {
		path := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(path, []byte("redis = { url = \"redis://127.0.0.1:1\", timeout = \""+timeout+"\" }\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		a := &invocation{configPath: path}
		s, err := a.open()
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		if got := s.redis.(*redis.Client).Options().ReadTimeout; got != want || s.config.CallTimeout() < want {
			t.Errorf("redis.timeout = %s: a reply is waited for %s, a call %s, want %s", timeout, got, s.config.CallTimeout(), want)
		}
	}
}
