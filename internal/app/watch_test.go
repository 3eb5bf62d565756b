package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/must"
)

// TestRunSeesChanges changes a real file in all ways in which that is done.
func TestRunSeesChanges(t *testing.T) {
	t.Parallel()
	write := func(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }
	for name, test := range map[string]struct {
		lay    func(dir string) error // puts a file of the old configuration there
		change func(dir, text string) error
	}{
		"written in place": {nil, func(dir, text string) error { return write(filepath.Join(dir, "config.toml"), text) }},
		"another put in its place": {nil, func(dir, text string) error {
			if err := write(filepath.Join(dir, "next"), text); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "config.toml"))
		}},
		"removed and made again": {nil, func(dir, text string) error {
			if err := os.Remove(filepath.Join(dir, "config.toml")); err != nil {
				return err
			}
			return write(filepath.Join(dir, "config.toml"), text)
		}},
		"a ConfigMap": {func(dir string) error {
			if err := os.Mkdir(filepath.Join(dir, "..v1"), 0o700); err != nil {
				return err
			}
			if err := write(filepath.Join(dir, "..v1", "config.toml"), reloadBefore); err != nil {
				return err
			}
			if err := os.Symlink("..v1", filepath.Join(dir, "..data")); err != nil {
				return err
			}
			return os.Symlink(filepath.Join("..data", "config.toml"), filepath.Join(dir, "config.toml"))
		}, func(dir, text string) error {
			if err := os.Mkdir(filepath.Join(dir, "..v2"), 0o700); err != nil {
				return err
			}
			if err := write(filepath.Join(dir, "..v2", "config.toml"), text); err != nil {
				return err
			}
			if err := os.Symlink("..v2", filepath.Join(dir, "..data_tmp")); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if test.lay == nil {
				test.lay = func(dir string) error { return write(filepath.Join(dir, "config.toml"), reloadBefore) }
			}
			must.OK(t, test.lay(dir))
			src := &source{options: config.Options{Path: filepath.Join(dir, "config.toml")}}
			cfg := must.Get(src.load(true))(t)
			rates := make(chan string, 10)
			part := target{bucketPaths, func(_ context.Context, cfg *config.Config) error {
				rates <- cfg.Buckets[0].Rate.String()
				return nil
			}}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- newReloader(cfg, src, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), part).run(ctx)
			}()
			must.OK(t, test.change(dir, strings.Replace(reloadBefore, "50/s", "60/s", 1)))
			must.Equal(t, <-rates, "60/s", "followed")
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// A secret that turns in its volume is followed without a signal. The configuration file is elsewhere, and stays.
func TestFollowFilesOfSecrets(t *testing.T) {
	t.Parallel()
	volume, dir := t.TempDir(), t.TempDir()
	turn := func(version, secret string) {
		t.Helper()
		for _, err := range []error{
			os.Mkdir(filepath.Join(volume, version), 0o700),
			os.WriteFile(filepath.Join(volume, version, "secret"), []byte(secret), 0o600),
			os.Symlink(version, filepath.Join(volume, "..next")),
			os.Rename(filepath.Join(volume, "..next"), filepath.Join(volume, "..data")),
		} {
			must.OK(t, err)
		}
	}
	const first, second = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	turn("..v1", first)
	must.OK(t, os.Symlink(filepath.Join("..data", "secret"), filepath.Join(volume, "secret")))
	text := reloadBefore + "[buckets.webhook]\nurl = \"https://example.com/\"\nsecrets = [\"file:" + filepath.Join(volume, "secret") + "\"]\n"
	must.OK(t, os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600))
	src := &source{options: config.Options{Path: filepath.Join(dir, "config.toml")}}
	cfg := must.Get(src.load(true))(t)
	secrets := make(chan string, 10)
	part := target{bucketPaths, func(_ context.Context, cfg *config.Config) error {
		secrets <- cfg.Buckets[0].Webhook.Secrets[0].Reveal()
		return nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- newReloader(cfg, src, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), part).run(ctx)
	}()
	turn("..v2", second)
	must.Equal(t, <-secrets, second, "followed")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
