package config

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"github.com/tundish-io/tundish/internal/setting"
)

const (
	defaultPath = "config.toml"
	maxFile     = 16 << 20
)

// Options select what to load. The zero value is ./config.toml, if it exists, and no environment.
type Options struct {
	// Path is the file; it must exist. Empty means the file that TUNDISH_CONFIG names, otherwise config.toml in the working directory if it exists,
	// otherwise the defaults alone.
	Path string

	// Env is the environment, as os.Environ returns it.
	Env []string

	// ReadFile reads the file and the files of secrets. Nil means from disk.
	ReadFile func(path string) ([]byte, error)

	// SecretsElsewhere accepts a configuration with secrets that cannot be read here. Use only its settings that are no secrets, such as addresses.
	SecretsElsewhere bool
}

// Load returns the configuration, or [Faults] with everything that is wrong with it.
func Load(o Options) (*Config, error) {
	l := newLoader(o)
	l.read(o.Path)
	var read settings
	file := l.table(setting.Keys(reflect.TypeFor[settings]()), l.doc.values, place{}, reflect.ValueOf(&read).Elem())
	s, err := merge(file, l.environment())
	if err != nil {
		return nil, err
	}
	for i := range s.Buckets {
		l.complete(&s.Buckets[i], at("buckets").element(i, ""), &s)
	}
	l.validate(&s)
	if len(l.faults) > 0 {
		l.faults.sort()
		return nil, l.faults
	}
	return l.config(&s), nil
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

// reason returns the text of an error without the path that it begins with.
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
	tag := func(c *mapstructure.DecoderConfig) { c.TagName = "setting" }
	if err := v.UnmarshalExact(&s, viper.DecodeHook(nil), tag); err != nil {
		return s, fmt.Errorf("config: decode: %w", err)
	}
	return s, nil
}

// config builds the configuration for programs from valid settings.
func (l *loader) config(s *settings) *Config {
	c := &Config{
		Revision: s.Revision, Redis: s.Redis, Producer: s.Producer, Dispatcher: s.Dispatcher, Console: s.Console, Log: s.Log, Tracing: s.Tracing,
		File: l.doc.file,
	}
	c.Redis.Files = l.redisFiles()
	for _, key := range s.Keys {
		c.Keys = append(c.Keys, key.key())
	}
	for i := range s.Limits {
		s.Limits[i] = s.Limits[i].WithDefaults()
	}
	c.Limits, c.Pools, c.Buckets = s.Limits, s.Pools, s.Buckets
	for i := range s.Pools {
		s.Pools[i].Revision = s.Revision
	}
	for i := range c.Buckets {
		b := &c.Buckets[i]
		l.bucketFiles(b, at("buckets").element(i, b.Name))
		b.Limits, b.Events = limitsOf(b.LimitNames, c.Limits), eventsOf(s.Hooks)
		for _, written := range s.Schedules {
			if written.Bucket == b.Name {
				b.Schedules = append(b.Schedules, written.schedule())
			}
		}
	}
	fillCallbacks(c.Buckets)
	for _, h := range s.Hooks {
		c.Hooks = append(c.Hooks, h.hook(c.Buckets))
	}
	from := sources{l.doc.file, l.doc.lines, l.variables}
	c.printed, c.written = func() []printed { return s.printed(from) }, from.has
	return c
}
