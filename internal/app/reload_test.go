package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/must"
)

const reloadBefore = `
[[limits]]
name = "per-caller"
limit = "100/m"
[[buckets]]
name = "webhooks"
rate = "50/s"
limits = ["per-caller"]
`

// followed is a reloader with one part, which remembers the rates it was given.
type followed struct {
	*reloader
	path  string
	log   *strings.Builder
	rates []string
	fail  error // of the part, once
}

func newFollowed(t *testing.T, text string) *followed {
	t.Helper()
	f := &followed{path: filepath.Join(t.TempDir(), "config.toml"), log: &strings.Builder{}}
	f.write(t, text)
	src := &source{options: config.Options{Path: f.path}}
	cfg := must.Get(src.load(true))(t)
	part := target{bucketPaths, func(_ context.Context, cfg *config.Config) error {
		for _, b := range cfg.Buckets {
			f.rates = append(f.rates, b.Rate.String())
		}
		err := f.fail
		f.fail = nil
		return err
	}}
	f.reloader = newReloader(cfg, src, slog.New(slog.NewTextHandler(f.log, nil)), prometheus.NewRegistry(), part)
	return f
}

func (f *followed) write(t *testing.T, text string) {
	t.Helper()
	must.OK(t, os.WriteFile(f.path, []byte(text), 0o600))
}

// wantStale checks the gauge that tells of a refused reload.
func (f *followed) wantStale(t *testing.T, want float64) {
	t.Helper()
	must.Equal(t, testutil.ToFloat64(f.stale), want, "tundish_config_reload_refused is")
	if why := f.refused.Load(); (why != nil && *why != "") != (want == 1) {
		t.Errorf("the fleet is told that the reload was refused: %v, want %t", why, want == 1)
	}
}

// want checks what the part was given, what was counted, and the log.
func (f *followed) want(t *testing.T, rates string, applied, refused float64, says ...string) {
	t.Helper()
	must.Equal(t, strings.Join(f.rates, " "), rates, "followed")
	for result, want := range map[string]float64{reloadApplied: applied, reloadRefused: refused} {
		must.Equal(t, testutil.ToFloat64(f.reloads.WithLabelValues(result)), want, "%s times", result)
	}
	for _, text := range says {
		if !strings.Contains(f.log.String(), text) {
			t.Errorf("the log does not say %q:\n%s", text, f.log)
		}
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	faster := strings.Replace(reloadBefore, "50/s", "60/s", 1)
	for name, test := range map[string]struct {
		after            string
		asked            bool
		rates            string
		applied, refused float64
		says             []string
	}{
		"nothing has changed":            {reloadBefore, false, "", 0, 0, nil},
		"nothing has changed, by SIGHUP": {reloadBefore, true, "50/s", 1, 0, []string{`msg="configuration reloaded"`, "changed=-"}},
		"a rate":                         {faster, false, "60/s", 1, 0, []string{`changed="buckets \"webhooks\".rate"`}},
		"faults": {
			"revision = -1\n" + faster + "capacity = 0\n", true, "", 0, 1,
			[]string{"the old one stays in force", "faults=2", "revision: -1: want 0 to", "capacity: 0: want 1 to"},
		},
		"bad syntax":    {faster + "x", false, "", 0, 1, []string{"faults=1"}},
		"an empty file": {" \n", false, "", 0, 1, []string{"is empty"}},
		"what needs a restart": {
			faster + "[log]\nlevel = \"warn\"\n[[buckets]]\nname = \"second\"\nrate = \"1/s\"\n", false, "60/s 1/s", 1, 0,
			[]string{`changed="buckets \"second\", buckets \"webhooks\".rate"`, `msg="changes of the configuration that need a restart"`, `keys=log.level`},
		},
		"a warning that is new": {strings.Replace(faster, "50/s", "5/s", 1) + "burst = 20000\n", false, "60/s", 1, 0, []string{"burst (20000) is above capacity"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFollowed(t, reloadBefore)
			f.write(t, test.after)
			f.reload(t.Context(), test.asked)
			f.want(t, test.rates, test.applied, test.refused, test.says...)
		})
	}
}

// TestReloadGoesOn wants a fault to be told once, and what was waiting for a
// restart to be told again with what comes later.
func TestReloadGoesOn(t *testing.T) {
	t.Parallel()
	f := newFollowed(t, reloadBefore)
	f.write(t, "x")
	f.wantStale(t, 0)
	f.reload(t.Context(), false)
	f.reload(t.Context(), false)
	f.want(t, "", 0, 1)
	f.wantStale(t, 1)
	f.write(t, "[log]\nlevel = \"warn\"\n"+reloadBefore)
	f.reload(t.Context(), false)
	f.wantStale(t, 0)
	f.write(t, "[log]\nlevel = \"warn\"\n"+strings.Replace(reloadBefore, "50/s", "60/s", 1))
	f.log.Reset()
	f.reload(t.Context(), false)
	f.want(t, "50/s 60/s", 2, 1, "keys=log.level")
	must.OK(t, os.Remove(f.path))
	f.reload(t.Context(), false)
	f.want(t, "50/s 60/s", 2, 2, "cannot be read")
	f.wantStale(t, 1)
}

// TestReloadIsAllOrNothing has a part fail: it goes back to what was.
func TestReloadIsAllOrNothing(t *testing.T) {
	t.Parallel()
	f := newFollowed(t, reloadBefore)
	f.write(t, strings.Replace(reloadBefore, "50/s", "60/s", 1))
	f.fail = errors.New("the part cannot")
	f.reload(t.Context(), false)
	f.want(t, "60/s 50/s", 0, 1, "the part cannot")
}

// TestReloadWithoutTheDefaultFile wants the defaults not to be taken for a
// configuration when ./config.toml is gone.
func TestReloadWithoutTheDefaultFile(t *testing.T) {
	t.Chdir(t.TempDir())
	must.OK(t, os.WriteFile("config.toml", []byte(reloadBefore), 0o600))
	src := &source{}
	if _, err := src.load(true); err != nil || src.file != "config.toml" {
		t.Fatal(src.file, err)
	}
	must.OK(t, os.Remove("config.toml"))
	if _, err := src.load(false); err == nil || !strings.Contains(err.Error(), "is not there any more") {
		t.Errorf("got %v", err)
	}
}

// TestFollow plays events of the directory on a clock of its own.
func TestFollow(t *testing.T) {
	t.Parallel()
	faster := strings.Replace(reloadBefore, "50/s", "60/s", 1)
	for name, test := range map[string]struct {
		events []string // names that something happens to, 100 ms apart
		signal bool
		after  time.Duration // when it is reloaded, at the latest
		rates  string
	}{
		"the file":                 {[]string{"config.toml"}, false, settleTime, "60/s"},
		"not before it is settled": {[]string{"config.toml", "config.toml", "config.toml"}, false, settleTime - time.Millisecond, ""},
		"links of a ConfigMap":     {[]string{"..2026", "..data_tmp", "..data"}, false, settleTime, "60/s"},
		"another file":             {[]string{"config.toml~", "other"}, false, time.Hour, ""},
		"a signal":                 {nil, true, 0, "60/s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFollowed(t, reloadBefore)
			f.write(t, faster)
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				events, asked := make(chan fsnotify.Event), make(chan os.Signal)
				done := make(chan struct{})
				go func() {
					defer close(done)
					f.follow(ctx, asked, events, nil)
				}()
				for i, name := range test.events {
					if i > 0 {
						<-time.After(100 * time.Millisecond)
					}
					events <- fsnotify.Event{Name: filepath.Join(filepath.Dir(f.path), name), Op: fsnotify.Create}
				}
				if test.signal {
					asked <- syscall.SIGHUP
				}
				<-time.After(test.after)
				synctest.Wait()
				stop()
				<-done
				must.Equal(t, strings.Join(f.rates, " "), test.rates, "followed")
			})
		})
	}
}

// TestRestartKeys checks that the help names each table whose changes need a restart.
func TestRestartKeys(t *testing.T) {
	t.Parallel()
	cfg := must.Get(config.Load(config.Options{ReadFile: func(string) ([]byte, error) { return []byte(reloadBefore), nil }}))(t)
	r := &reloader{targets: []target{{paths: bucketPaths}, {paths: []string{"keys"}}}}
	var tables []string
	for _, s := range cfg.Effective() {
		table, _, _ := strings.Cut(s.Key, ".")
		table, _, _ = strings.Cut(table, "[")
		if !r.follows(config.Change{Path: table}) && !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
	}
	if !slices.Equal(tables, RestartTables) {
		t.Errorf("a restart is needed for %q, and RestartTables, which the help names, has %q", tables, RestartTables)
	}
}
