package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Whoever sits at a terminal is asked, and has to type the bucket's name.
func TestDropAllAsks(t *testing.T) {
	t.Parallel()
	for answer, code := range map[string]int{"webhooks\n": exitDone, "y\n": exitFailed, "": exitFailed} {
		var out, asked strings.Builder
		a := &invocation{configPath: emptyBucket(t), in: strings.NewReader(answer), out: &out, err: &asked}
		err := a.withAPI(t.Context(), func(ctx context.Context, c *api) error {
			return a.deadDropFound(ctx, c, "webhooks", operator.DeadFilter{}, false, false)
		})
		if codeOf(err) != code {
			t.Errorf("answer %q: %v, want exit code %d", answer, err, code)
		}
		if want := `drops 0 dead letters of bucket "webhooks" for good`; !strings.Contains(asked.String(), want) {
			t.Errorf("asked %q, want %q", asked.String(), want)
		}
		must.Equal(t, strings.Contains(out.String(), "dropped:"), (code == exitDone), "answer %q: stdout says %q", answer, out.String())
	}
}

// A purge asks too.
func TestPurgeAsks(t *testing.T) {
	t.Parallel()
	for answer, code := range map[string]int{"webhooks\n": exitDone, "y\n": exitFailed, "": exitFailed} {
		var out, asked strings.Builder
		a := &invocation{configPath: emptyBucket(t), in: strings.NewReader(answer), out: &out, err: &asked}
		err := a.withAPI(t.Context(), func(ctx context.Context, c *api) error {
			return a.purgeBy(ctx, c, purgeFlags{}, "bucket", "webhooks", "webhooks", askBucketPurge("webhooks"))
		})
		if codeOf(err) != code {
			t.Errorf("answer %q: %v, want exit code %d", answer, err, code)
		}
		if want := `drops 0 waiting jobs of bucket "webhooks" for good`; !strings.Contains(asked.String(), want) {
			t.Errorf("asked %q, want %q", asked.String(), want)
		}
		must.Equal(t, strings.Contains(out.String(), "purged:"), (code == exitDone), "answer %q: stdout says %q", answer, out.String())
	}
}

// A redrive by filter asks too: what is redriven is sent again.
func TestRedriveAsks(t *testing.T) {
	t.Parallel()
	for answer, code := range map[string]int{"webhooks\n": exitDone, "y\n": exitFailed, "": exitFailed} {
		var out, asked strings.Builder
		a := &invocation{configPath: emptyBucket(t), in: strings.NewReader(answer), out: &out, err: &asked}
		err := a.withAPI(t.Context(), func(ctx context.Context, c *api) error {
			return a.deadRedriveFound(ctx, c, "webhooks", operator.DeadFilter{Status: 500}, false, true, true)
		})
		if codeOf(err) != code {
			t.Errorf("answer %q: %v, want exit code %d", answer, err, code)
		}
		if want := `redrives 0 dead letters of bucket "webhooks"`; !strings.Contains(asked.String(), want) {
			t.Errorf("asked %q, want %q", asked.String(), want)
		}
		must.Equal(t, strings.Contains(out.String(), "redriven:"), (code == exitDone), "answer %q: stdout says %q", answer, out.String())
	}
}

// emptyBucket is a configuration file with an empty bucket "webhooks".
func emptyBucket(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	text := "[redis]\nurl = \"redis://" + redistest.Miniredis(t).Addr() + "\"\ntimeout = \"10s\"\n[[buckets]]\nname = \"webhooks\"\nrate = \"1/s\"\n"
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
