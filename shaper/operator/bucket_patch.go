package operator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
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

// readSettings makes a bucket of the fields of conf; what they do not say has
// its default.
func readSettings(name string, fields map[string]string) shaper.Bucket {
	b := shaper.DefaultBucket()
	b.Name, b.Rate = name, store.RateFrom(fields)
	for setting, to := range numbersOf(&b) {
		if n, err := strconv.ParseInt(fields[store.SettingFields[setting][0]], 10, 64); err == nil {
			*to = n
		}
	}
	return b
}

// numbersOf are the settings of a bucket that are numbers.
func numbersOf(b *shaper.Bucket) map[shaper.Setting]*int64 {
	return map[shaper.Setting]*int64{
		shaper.SettingBurst: &b.Burst, shaper.SettingCapacity: &b.Capacity, shaper.SettingScheduledCapacity: &b.ScheduledCapacity,
		shaper.SettingMaxInFlight: &b.MaxInFlight, shaper.SettingShedLow: &b.Shed.Low, shaper.SettingShedNormal: &b.Shed.Normal, shaper.SettingShedHigh: &b.Shed.High,
	}
}

// BucketPatch is a change of a bucket's settings. The zero value changes none.
type BucketPatch struct {
	rate    *admission.Rate
	numbers map[shaper.Setting]int64
}

// IsZero reports whether the patch changes nothing.
func (p BucketPatch) IsZero() bool { return p.rate == nil && len(p.numbers) == 0 }

// Put adds a setting to the patch, its value as in the configuration: "20/s"
// for a rate, "5000" for a number. Whether the bucket is valid with it is for
// [BucketControl.Set] to say. The error begins with the setting.
func (p *BucketPatch) Put(setting shaper.Setting, value string) error {
	if setting == shaper.SettingRate {
		rate, err := admission.ParseRate(value)
		if err != nil && rate.Count == 0 && rate.Per > 0 {
			return fmt.Errorf("%s: %q would mean that it is paused: pause it, or the buckets of a pool, so that all see why", setting, value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", setting, err)
		}
		p.rate = &rate
		return nil
	}
	if store.SettingFields[setting] == nil {
		return unknownSetting(string(setting))
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %q is not a whole number", setting, value)
	}
	if p.numbers == nil {
		p.numbers = map[shaper.Setting]int64{}
	}
	p.numbers[setting] = n
	return nil
}

// applied returns the bucket with the patch.
func (p BucketPatch) applied(b shaper.Bucket) shaper.Bucket {
	if p.rate != nil {
		b.Rate = *p.rate
	}
	for setting, to := range numbersOf(&b) {
		if n, ok := p.numbers[setting]; ok {
			*to = n
		}
	}
	return b
}

// fields are the arguments of control.lua: field, value, ...
func (p BucketPatch) fields() []any {
	var args []any
	if p.rate != nil {
		args = append(args, store.FieldRateCount, p.rate.Count, store.FieldRatePer, p.rate.Per.Microseconds())
	}
	for _, setting := range shaper.Settings() {
		if n, ok := p.numbers[setting]; ok {
			args = append(args, store.SettingFields[setting][0], n)
		}
	}
	return args
}

// Override is a setting that an operator has changed over what configurations say.
type Override struct {
	Setting    shaper.Setting
	Configured string // what the configuration in force says
	InForce    string
	By         string
	At         time.Time
}

// readOverrides reads the fields that are overridden, from the end of the answer of
// inspect_bucket.lua.
func readOverrides(r *lua.Reader) []Override {
	configured, inForce, stamps := map[string]string{}, map[string]string{}, map[string]string{}
	for r.Left() > 0 {
		field := r.Text()
		configured[field], inForce[field], stamps[field] = r.Text(), r.Text(), r.Text()
	}
	var overrides []Override
	for _, setting := range shaper.Settings() {
		fields := store.SettingFields[setting]
		if !slices.ContainsFunc(fields, func(f string) bool { _, ok := stamps[f]; return ok }) {
			continue
		}
		override := Override{Setting: setting, Configured: store.SettingText(setting, configured), InForce: store.SettingText(setting, inForce)}
		at, by, _ := strings.Cut(stamps[fields[0]], " ")
		if micros, err := strconv.ParseInt(at, 10, 64); err == nil {
			override.At = time.UnixMicro(micros)
		}
		override.By = by
		overrides = append(overrides, override)
	}
	return overrides
}
