package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// This file is the stored form of limits in Redis, in the hash "settings" of a bucket and in the hash "conf" of a limit without a bucket:
//
//	limits        JSON array of the limits of the effective configuration
//	pin:<limit>   JSON of a [Patch]: the override of that limit
//	limits_rev    a number that every change of these raises
//
// A caller sends the limits_rev that it knows. If it is outdated, the script reports so, and the caller reads these fields again. So a change is
// effective for all processes at once.

// Fields of the hash.
const (
	FieldLimits    = "limits"
	FieldLimitsRev = "limits_rev"
	FieldOverride  = "pin:" // and the limit's name
)

// Patch is a change of a limit. A nil field stays unchanged.
type Patch struct {
	Limit *Rate  `json:"limit,omitempty"`
	Burst *int64 `json:"burst,omitempty"`
	Mode  *Mode  `json:"mode,omitempty"`

	// Named tiers are replaced. None is added.
	Tiers map[string]Rate `json:"tiers,omitempty"`
}

// IsZero reports whether the patch changes nothing.
func (p Patch) IsZero() bool {
	return p.Limit == nil && p.Burst == nil && p.Mode == nil && len(p.Tiers) == 0
}

// Merge returns the changes of both patches; if both change a setting, over wins.
func (p Patch) Merge(over Patch) Patch {
	if over.Limit != nil {
		p.Limit = over.Limit
	}
	if over.Burst != nil {
		p.Burst = over.Burst
	}
	if over.Mode != nil {
		p.Mode = over.Mode
	}
	if len(over.Tiers) > 0 {
		tiers := maps.Clone(p.Tiers)
		if tiers == nil {
			tiers = map[string]Rate{}
		}
		maps.Copy(tiers, over.Tiers)
		p.Tiers = tiers
	}
	return p
}

// With returns the limit with a patch applied, or an error if the patch does not fit. If only
// the rate of a token bucket changes, its burst is scaled alike.
func (l Limit) With(p Patch) (Limit, error) {
	if p.Limit != nil {
		l = l.at(*p.Limit)
	}
	if p.Burst != nil {
		l.Burst = *p.Burst
	}
	if p.Mode != nil {
		l.Mode = *p.Mode
	}
	if len(p.Tiers) > 0 {
		l.Tiers = maps.Clone(l.Tiers)
		for _, tier := range slices.Sorted(maps.Keys(p.Tiers)) {
			if _, ok := l.Tiers[tier]; !ok {
				return l, fmt.Errorf("tiers.%s: limit %q has no such tier", tier, l.Name)
			}
			l.Tiers[tier] = p.Tiers[tier]
		}
	}
	return l, l.Validate()
}

// limitText is a limit as JSON. Rates are in their own grammar.
type limitText struct {
	Name           string          `json:"name"`
	Algorithm      Algorithm       `json:"algorithm"`
	Per            []string        `json:"per,omitempty"`
	Limit          Rate            `json:"limit"`
	Burst          int64           `json:"burst,omitempty"`
	Precision      int64           `json:"precision,omitempty"`
	MaxKeys        int64           `json:"max_keys,omitempty"` // none is DefaultMaxKeys
	Tiers          map[string]Rate `json:"tiers,omitempty"`
	Mode           Mode            `json:"mode"`
	OnStoreFailure OnStoreFailure  `json:"on_store_failure"`
	OnMissing      OnMissing       `json:"on_missing"`
	SyncInterval   string          `json:"sync_interval,omitempty"`
}

// MarshalJSON writes the limit with the keys of the configuration.
func (l Limit) MarshalJSON() ([]byte, error) {
	t := limitText{
		Name: l.Name, Algorithm: l.Algorithm, Per: l.Per, Limit: l.Limit, Burst: l.Burst, Precision: l.Precision,
		Tiers: l.Tiers, Mode: l.Mode, OnStoreFailure: l.OnStoreFailure, OnMissing: l.OnMissing,
	}
	if l.MaxKeys != DefaultMaxKeys {
		t.MaxKeys = l.MaxKeys
	}
	if l.SyncInterval != 0 {
		t.SyncInterval = l.SyncInterval.String()
	}
	return json.Marshal(t)
}

// UnmarshalJSON reads what MarshalJSON has written, and fills in defaults.
func (l *Limit) UnmarshalJSON(data []byte) error {
	var t limitText
	if err := json.Unmarshal(data, &t); err != nil {
		return err
	}
	*l = Limit{
		Name: t.Name, Algorithm: t.Algorithm, Per: t.Per, Limit: t.Limit, Burst: t.Burst, Precision: t.Precision, MaxKeys: t.MaxKeys,
		Tiers: t.Tiers, Mode: t.Mode, OnStoreFailure: t.OnStoreFailure, OnMissing: t.OnMissing,
	}
	if t.SyncInterval != "" {
		d, err := time.ParseDuration(t.SyncInterval)
		if err != nil {
			return err
		}
		l.SyncInterval = d
	}
	*l = l.WithDefaults()
	return nil
}

// EncodeLimits makes the text of [FieldLimits]. The same limits give the same
// text.
func EncodeLimits(limits []Limit) (string, error) {
	if limits == nil {
		limits = []Limit{}
	}
	text, err := json.Marshal(limits)
	return string(text), err
}

// DecodeLimits reads the effective limits from such a hash: the configured limits, with the operators' overrides. It leaves out an override that
// no longer fits its limit, because the limit was changed, and names it in ignored. A limit that this program cannot apply is an error: a newer
// program wrote it.
func DecodeLimits(conf map[string]string) (limits []Limit, ignored []string, err error) {
	text, ok := conf[FieldLimits]
	if !ok {
		return nil, nil, nil
	}
	if err := json.Unmarshal([]byte(text), &limits); err != nil {
		return nil, nil, fmt.Errorf("admission: limits in Redis: %w", err)
	}
	for i, limit := range limits {
		if err := limit.Validate(); err != nil {
			return nil, nil, fmt.Errorf("admission: this program does not know limit %q as it is in Redis, use a newer program: %w", limit.Name, err)
		}
		override, ok := conf[FieldOverride+limit.Name]
		if !ok {
			continue
		}
		patched, err := limit.withOverride(override)
		if err != nil {
			ignored = append(ignored, limit.Name)
			continue
		}
		limits[i] = patched
	}
	return limits, ignored, nil
}

func (l Limit) withOverride(text string) (Limit, error) {
	var p Patch
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return l, err
	}
	return l.With(p)
}

// OverrideText returns the text of the field [FieldOverride] for an override of a configured limit, "" for none. An override that does not fit the
// limit is an [*InvalidPatchError].
func OverrideText(configured Limit, override Patch) (string, error) {
	if override.IsZero() {
		return "", nil
	}
	if _, err := configured.With(override); err != nil {
		return "", &InvalidPatchError{Limit: configured.Name, Err: err}
	}
	text, err := json.Marshal(override)
	return string(text), err
}
