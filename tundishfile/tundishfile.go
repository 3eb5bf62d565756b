// Package tundishfile loads the configuration file of `producer` and `dispatcher`. A program of your own reads buckets, limits and the address of Redis
// from it, so that nothing is written twice.
//
//	file, err := tundishfile.Load("config.toml")
//	t, err := file.Open()
//	settings, err := file.Settings("letters")
//	t.Handle(letters.Work(settings, send))
//	api, err := t.Limit("vendor-api", "") // as the file says
//
// A bucket that your program works has `worker = "program"` in the file: `dispatcher run` leaves its jobs to that program, and the commands and the HTTP
// API show and change it as any other. The package is separate from package tundish because it needs viper to read TOML.
package tundishfile

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/tundish-io/tundish"
	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
)

// File is a valid configuration. It does not follow changes of the file: load it again.
type File struct{ cfg *config.Config }

// Load reads a file, and the environment variables TUNDISH_..., which override it, as for the programs. The error lists every fault, each with its line
// and the valid values. "" is the file that TUNDISH_CONFIG names, otherwise config.toml in the working directory if there is one, otherwise the
// defaults.
func Load(path string) (*File, error) {
	cfg, err := config.Load(config.Options{Path: path, Env: os.Environ()})
	if err != nil {
		return nil, fmt.Errorf("tundishfile: %w", err)
	}
	return &File{cfg}, nil
}

// Open returns a client for the Redis of the file, which knows the file's buckets and limits, and logs to [slog.Default]. For the embedded store, that
// is the Redis in the dispatcher that runs on this machine. It makes no round trip.
func (f *File) Open() (*tundish.Client, error) {
	log, cfg := slog.Default(), f.cfg
	return tundish.New(tundish.Config{
		URL: cfg.Redis.Address(), Connection: cfg.Redis.Options(log), Log: log,
		Producer: func(p *producer.Config) { p.Buckets, p.Timeout = f.Buckets(), cfg.CallTimeout() },
		Limiter:  func(l *admission.LimiterConfig) { l.Limits, l.Revision = cfg.Limits, cfg.Revision },
		Dispatcher: func(d *dispatcher.Config) {
			d.Concurrency, d.Lease, d.Timeout = cfg.Dispatcher.Workers(), cfg.Dispatcher.Lease, cfg.CallTimeout()
			d.ShutdownTimeout = max(cfg.Dispatcher.ShutdownTimeout, time.Nanosecond) // 0 would mean the default
			for _, h := range cfg.Hooks {
				d.Hooks = append(d.Hooks, dispatcher.Hook(h))
			}
		},
	})
}

// Buckets returns the buckets of the file, in its order, for the packages below shaper.
func (f *File) Buckets() []shaper.Bucket {
	buckets := make([]shaper.Bucket, len(f.cfg.Buckets))
	for i := range f.cfg.Buckets {
		buckets[i] = f.cfg.Buckets[i].Bucket
	}
	return buckets
}

// Settings returns the settings of a bucket of the file, for [tundish.Bucket.Work]. It returns an error for a bucket that `dispatcher run` would work
// too, because its worker is not "program".
func (f *File) Settings(bucket string) (tundish.Settings, error) {
	for _, b := range f.cfg.Buckets {
		switch {
		case b.Name != bucket:
			continue
		case !b.ByProgram():
			return tundish.Settings{}, fmt.Errorf("tundishfile: %s: bucket %q has the worker %q, so `dispatcher run` works it: set worker = \"program\"", f.cfg.File, bucket, b.Worker)
		}
		return tundish.Settings{Change: func(s *shaper.Bucket) { *s = b.Bucket }}, nil
	}
	return tundish.Settings{}, fmt.Errorf("tundishfile: %s: has no bucket %q", f.cfg.File, bucket)
}
