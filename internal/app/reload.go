package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper/audit"
)

// source is the source of a daemon's configuration.
type source struct {
	options config.Options
	read    [sha256.Size]byte // digest of the files that were read the last time
	file    string            // the configuration file; "" if there was none
	secrets fileStamps        // of the other files that were read the last time
}

var errUnchanged = errors.New("the files have not changed")

// load reads the configuration. If the files are the same as the last time
// it returns [errUnchanged], unless again is true.
func (s *source) load(again bool) (*config.Config, error) {
	digest := sha256.New()
	empty := ""
	options := s.options
	secrets := fileStamps{}
	options.ReadFile = func(path string) ([]byte, error) {
		secrets.note(path)
		data, err := config.ReadFile(path)
		sum := sha256.Sum256(data)
		digest.Write(sum[:])
		if path == s.file && err == nil && strings.TrimSpace(string(data)) == "" {
			empty = path
		}
		return data, err
	}
	cfg, err := config.Load(options)
	delete(secrets, s.file) // it is watched by other means
	s.secrets = secrets
	var sum [sha256.Size]byte
	digest.Sum(sum[:0])
	if sum == s.read && !again {
		return nil, errUnchanged
	}
	s.read = sum
	switch {
	case err != nil:
		return nil, err
	case empty != "":
		return nil, config.Faults{{File: s.file, Reason: "is empty: it is probably being written"}}
	case s.file != "" && cfg.File == "":
		return nil, config.Faults{{File: s.file, Reason: "is not there any more"}}
	}
	s.file = cfg.File
	delete(s.secrets, s.file)
	return cfg, nil
}

// reloader applies a changed configuration to a running daemon: every part that can change while
// it runs, or nothing if there is a fault. It reads and checks all first; if a part cannot follow, all return. Redis holds only the settings of the
// buckets and their places, so a process that stops in between leaves nothing half done.
type reloader struct {
	source  *source
	started *config.Config // with which the process started
	inForce *config.Config // the configuration that is applied now
	targets []target
	log     *slog.Logger
	reloads *prometheus.CounterVec
	stale   prometheus.Gauge
	records *audit.Log              // nil records nothing
	notify  *notifier               // nil notifies nobody
	refused *atomic.Pointer[string] // the first fault of the last reload, nil: it was applied
}

// target is a part of a daemon that can follow a configuration. apply gets valid
// configurations only.
type target struct {
	paths []string // which keys it follows: these, and those below them
	apply func(context.Context, *config.Config) error
}

// Values of the label "result".
const (
	reloadApplied = "applied"
	reloadRefused = "refused"
)

func newReloader(cfg *config.Config, src *source, log *slog.Logger, reg prometheus.Registerer, targets ...target) *reloader {
	r := &reloader{
		refused: &atomic.Pointer[string]{},
		source:  src, started: cfg, inForce: cfg, targets: targets, log: log.With("component", "reload"),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tundish_config_reloads_total",
			Help: "Reloads of the configuration: applied, or refused because of a fault.",
		}, []string{"result"}),
		stale: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tundish_config_reload_refused",
			Help: "1 if the last reload was refused, so that the process keeps to an older configuration than its file, else 0.",
		}),
	}
	r.reloads.WithLabelValues(reloadApplied)
	r.reloads.WithLabelValues(reloadRefused)
	reg.MustRegister(r.reloads, r.stale)
	return r
}

// reload reads the configuration again and applies the changes. asked says that a signal requested it: then it also logs that nothing has changed.
func (r *reloader) reload(ctx context.Context, asked bool) {
	cfg, err := r.source.load(asked)
	if errors.Is(err, errUnchanged) {
		return
	}
	defer r.notify.reloading(ctx)()
	if err == nil {
		end := r.record(ctx, cfg)
		err = r.apply(ctx, cfg)
		end(err)
	}
	if err != nil {
		r.refuse(ctx, err)
		return
	}
	r.reloads.WithLabelValues(reloadApplied).Inc()
	r.stale.Set(0)
	r.refused.Store(nil)
	r.logChanges(ctx, cfg)
	r.inForce = cfg
}

// record writes the audit record of a reload, and returns the function that ends it. A process without Redis follows its configuration all the same.
func (r *reloader) record(ctx context.Context, cfg *config.Config) (end func(err error)) {
	changed := config.Changes(r.inForce, cfg)
	if r.records == nil || len(changed) == 0 {
		return func(error) {}
	}
	record := &audit.Record{
		Author: "file " + cfg.File, Process: redisconn.ProcessName(), Operation: "reload",
		Asked: map[string]any{"revision": cfg.Revision, "settings": keysOf(changed)},
	}
	failed := r.records.Begin(ctx, record)
	return func(err error) {
		record.Outcome = audit.Done
		if err != nil {
			record.Outcome, record.Detail = audit.Failed, err.Error()
		}
		if failed == nil {
			failed = r.records.End(ctx, record)
		}
		if failed != nil {
			r.log.WarnContext(ctx, "the audit does not have this reload", "error", failed)
		}
	}
}

// apply makes every part follow cfg. If one cannot, all return to the effective configuration.
func (r *reloader) apply(ctx context.Context, cfg *config.Config) error {
	for i, t := range r.targets {
		err := t.apply(ctx, r.running(cfg))
		if err == nil {
			continue
		}
		for _, t := range r.targets[:i+1] {
			err = errors.Join(err, t.apply(ctx, r.running(r.inForce)))
		}
		return err
	}
	return nil
}

// RestartTables are the tables of the configuration whose changes need a restart.
var RestartTables = []string{"redis", "producer", "dispatcher", "console", "log", "tracing"}

// running returns a configuration in which tables whose keys need a restart are as at the start of the process.
func (r *reloader) running(cfg *config.Config) *config.Config {
	now := *cfg
	now.Redis, now.Producer, now.Dispatcher, now.Console, now.Log = r.started.Redis, r.started.Producer, r.started.Dispatcher, r.started.Console, r.started.Log
	return &now
}

// maxRefusedText bounds the text of a fault in the fleet's report, in bytes.
const maxRefusedText = 300

func (r *reloader) refuse(ctx context.Context, err error) {
	r.reloads.WithLabelValues(reloadRefused).Inc()
	r.stale.Set(1)
	faults, ok := errors.AsType[config.Faults](err)
	if !ok {
		faults = config.Faults{{Reason: err.Error()}}
	}
	if len(faults) > 0 {
		text := opsview.Line(faults[0].Error(), maxRefusedText)
		r.refused.Store(&text)
	}
	r.log.ErrorContext(ctx, "the changed configuration is not applied: the old one stays in force", "faults", len(faults))
	for _, fault := range faults {
		r.log.ErrorContext(ctx, "fault of the changed configuration", "fault", fault.Error())
	}
}

// logChanges logs the changes that take effect now, and those that wait for a restart.
func (r *reloader) logChanges(ctx context.Context, cfg *config.Config) {
	changed := slices.DeleteFunc(config.Changes(r.inForce, cfg), func(c config.Change) bool { return !r.follows(c) })
	waiting := slices.DeleteFunc(config.Changes(r.started, cfg), r.follows)
	r.log.InfoContext(ctx, "configuration reloaded", "file", cfg.File, "revision", cfg.Revision, "changed", cmp.Or(fewOf(keysOf(changed)), "-"))
	if len(waiting) > 0 {
		r.log.WarnContext(ctx, "changes of the configuration that need a restart", "keys", fewOf(keysOf(waiting)))
	}
	known := r.inForce.Warnings()
	for _, warning := range cfg.Warnings() {
		if !slices.Contains(known, warning) {
			r.log.WarnContext(ctx, "configuration", "warning", warning)
		}
	}
}

func (r *reloader) follows(c config.Change) bool {
	if r.started != nil { // each connection reads these
		files := r.started.Redis.Files
		if c.Path == "redis.password" && files.Password != "" || c.Path == "redis.sentinel_password" && files.SentinelPassword != "" {
			return true
		}
	}
	return slices.ContainsFunc(r.targets, func(t target) bool {
		return slices.ContainsFunc(t.paths, func(path string) bool {
			return c.Path == path || strings.HasPrefix(c.Path, path+".")
		})
	})
}

func keysOf(changes []config.Change) []string {
	keys := make([]string, len(changes))
	for i, c := range changes {
		keys[i] = c.Key
	}
	return keys
}
