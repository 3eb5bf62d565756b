package operator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

func unknownSetting(name string) error {
	names := make([]string, 0, len(shaper.Settings()))
	for _, setting := range shaper.Settings() {
		names = append(names, string(setting))
	}
	return fmt.Errorf("%s: is no setting that can be changed at run time: want %s", name, strings.Join(names, ", "))
}

// changeable are the settings of buckets that operators change.
var changeable = store.OfBuckets.Changeable()

// overridable are the fields that operators change, for the scripts that read a bucket or a pool.
var (
	overridable        = fieldsOf(changeable)
	overridableOfPools = fieldsOf(ofPools)
)

func fieldsOf(settings store.StoredSettings) (args []any) {
	for _, field := range settings.Fields() {
		args = append(args, field)
	}
	return args
}

// readSettings makes a bucket of the fields of conf; a missing field has its default.
func readSettings(name string, fields map[string]string) shaper.Bucket {
	b := shaper.DefaultBucket()
	b.Name = name
	changeable.Read(&b, fields)
	return b
}

// BucketPatch is a change of a bucket's settings. The zero value changes none.
type BucketPatch struct {
	values map[shaper.Setting]store.Value
}

// IsZero reports whether the patch changes nothing.
func (p BucketPatch) IsZero() bool { return len(p.values) == 0 }

// Put adds a setting to the patch, its value as in the configuration: "20/s" for a rate, "5000" for a number. [Bucket.Set] checks whether the
// bucket is valid with it. The error begins with the setting.
func (p *BucketPatch) Put(setting shaper.Setting, value string) error {
	s := changeable.Find(setting)
	if s == nil {
		return unknownSetting(string(setting))
	}
	v, err := s.Parse(value)
	if err != nil {
		return fmt.Errorf("%s: %w", setting, err)
	}
	if p.values == nil {
		p.values = map[shaper.Setting]store.Value{}
	}
	p.values[setting] = v
	return nil
}

// apply changes an object whose settings are the list.
func (p BucketPatch) apply(object any, list store.StoredSettings) {
	for i := range list {
		if v, ok := p.values[list[i].Name]; ok {
			list[i].SetOn(object, v)
		}
	}
}

// fields are the arguments of control.lua: field, value, ...
func (p BucketPatch) fields() (args []any) {
	for i := range changeable {
		if v, ok := p.values[changeable[i].Name]; ok {
			args = append(args, changeable[i].Args(v)...)
		}
	}
	return args
}

// Override is a setting that an operator has changed over what configurations say.
type Override struct {
	Setting    shaper.Setting
	Configured string // the value of the effective configuration
	InForce    string
	By         string
	At         time.Time
}

// readOverrides reads the fields that are overridden: see lua/lib/overrides.lua.
func readOverrides(r *lua.Reader) []Override {
	configured, inForce, stamps := map[string]string{}, map[string]string{}, map[string]string{}
	for r.Left() > 0 {
		field := r.Text()
		configured[field], inForce[field], stamps[field] = r.Text(), r.Text(), r.Text()
	}
	var overrides []Override
	for i := range changeable {
		setting := &changeable[i]
		if !slices.ContainsFunc(setting.Fields, func(f string) bool { _, ok := stamps[f]; return ok }) {
			continue
		}
		override := Override{Setting: setting.Name, Configured: setting.Text(configured), InForce: setting.Text(inForce)}
		at, by, _ := strings.Cut(stamps[setting.Fields[0]], " ")
		if micros, err := strconv.ParseInt(at, 10, 64); err == nil {
			override.At = time.UnixMicro(micros)
		}
		override.By = by
		overrides = append(overrides, override)
	}
	return overrides
}
