package config

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"

	"github.com/spf13/viper"

	"github.com/tundish-io/tundish/admission"
)

const (
	defaultPath = "config.toml"
	maxFile     = 1 << 20
)

// Options say what to load. The zero value is ./config.toml, if there is one,
// and no environment.
type Options struct {
	// Path is the file; it must exist. Empty means the file that TUNDISH_CONFIG
	// names, else config.toml in the working directory if it exists, else the
	// defaults alone.
	Path string

	// Env is the environment, as os.Environ returns it.
	Env []string

	// ReadFile reads the file and the files of secrets. Nil means from disk.
	ReadFile func(path string) ([]byte, error)
}

// Load returns the configuration, or [Faults]: everything that is wrong with it.
func Load(o Options) (*Config, error) {
	l := newLoader(o)
	l.read(o.Path)
	file := l.table(reflect.TypeFor[settings](), l.doc.values, place{})
	s, err := merge(file, l.environment())
	if err != nil {
		return nil, err
	}
	l.scheduled(&s)
	l.byWorker(&s)
	l.validate(&s)
	if len(l.faults) > 0 {
		l.faults.sort()
		return nil, l.faults
	}
	return l.config(s), nil
}

// read finds and parses the file.
func (l *loader) read(path string) {
	explicit := true
	if path == "" {
		path = l.env[envConfig]
	}
	if path == "" {
		path, explicit = defaultPath, false
	}
	data, err := l.readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !explicit:
		return
	case err != nil:
		l.faults = append(l.faults, Fault{File: path, Reason: "cannot be read: " + reason(err)})
		return
	}
	doc, fault := parseDocument(path, data)
	if l.doc = doc; fault != nil {
		l.faults = append(l.faults, *fault)
	}
}

// reason leaves the path out of an error that names it in front.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// merge puts the layers over each other: defaults, the file, the environment.
// Each call has its own viper. It reads neither files nor the environment. Its
// arguments are checked, so an error of it is a fault of this program.
func merge(file, env map[string]any) (settings, error) {
	v := viper.New()
	for _, key := range scalars() {
		v.SetDefault(key.path, key.value.Interface())
	}
	var s settings
	if err := v.MergeConfigMap(file); err != nil {
		return s, fmt.Errorf("config: merge: %w", err)
	}
	for path, value := range env {
		v.Set(path, value)
	}
	if err := v.UnmarshalExact(&s, viper.DecodeHook(nil)); err != nil {
		return s, fmt.Errorf("config: decode: %w", err)
	}
	return s, nil
}

// scheduled gives a bucket with a schedule of retries, and without max_attempts in the file, an attempt for each wait
// and one before.
func (l *loader) scheduled(s *settings) {
	for i := range s.Buckets {
		p, retry := at("buckets").element(i, "").key("retry").key("max_attempts"), &s.Buckets[i].Retry
		if _, set := l.doc.lines[p.path]; !set && len(retry.Schedule) > 0 {
			retry.MaxAttempts = len(retry.Schedule) + 1
		}
	}
}

// config builds what programs use of settings that are valid.
func (l *loader) config(s settings) *Config {
	c := &Config{
		Revision: s.Revision, Redis: s.Redis, Producer: s.Producer, Dispatcher: s.Dispatcher, Log: s.Log,
		File: l.doc.file,
	}
	for _, key := range s.Keys {
		c.Keys = append(c.Keys, key.key())
	}
	c.Limits = make([]admission.Limit, len(s.Limits))
	for i := range s.Limits {
		c.Limits[i] = s.Limits[i].limit()
		s.Limits[i].Burst = c.Limits[i].Burst // for Effective
	}
	for _, p := range s.Pools {
		c.Pools = append(c.Pools, p.pool(s.Revision))
	}
	for _, b := range s.Buckets {
		made := b.bucket(c.Limits, c.Pools, s.Revision)
		made.Events = eventsOf(s.Hooks)
		for _, written := range s.Schedules {
			if written.Bucket == b.Name {
				made.Schedules = append(made.Schedules, written.schedule())
			}
		}
		c.Buckets = append(c.Buckets, made)
	}
	fillCallbacks(c.Buckets)
	for _, h := range s.Hooks {
		c.Hooks = append(c.Hooks, h.hook(c.Buckets))
	}
	c.effective = l.effective(s)
	return c
}
