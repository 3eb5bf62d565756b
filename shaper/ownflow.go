package shaper

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/setting"
)

// ReasonFlowSettings is the reason of an attempt that was not made because no worker can use the flow's own settings. The job is tried again, as an
// operator may correct the settings meanwhile. After the last attempt it becomes a dead letter, which can be redriven.
const ReasonFlowSettings = "flow_settings"

// OwnDelivery holds a flow's own delivery settings, see [FlowSetting]. It holds credentials, so it neither prints nor marshals. Attempts share it: do
// not change it.
type OwnDelivery struct {
	URL     string            `json:"-"` // "" if it has none
	Headers map[string]string `json:"-"`
	Secrets []string          `json:"-"`
}

// String withholds all of it.
func (OwnDelivery) String() string { return "(settings of a flow)" }

// GoString withholds all of it.
func (o OwnDelivery) GoString() string { return o.String() }

// OwnBounds are the settings that one flow or group overrides. Zero or nil means the bucket's setting for all flows or groups. The tag redis is the
// position in the text that Redis keeps (numbers are in its first line), and json the member in the API.
type OwnBounds struct {
	Rate  admission.Rate `setting:"rate,redis=0,change" json:"rate,omitzero" help:"departures, such as '5/s' or 100/m"`
	Burst *int64         `setting:"burst,redis=2,change" json:"burst,omitempty" help:"'number' of departures that may leave at once after a quiet time"`

	// 0: the bucket's bound only.
	Capacity *int64 `setting:"capacity,redis=3,change" json:"capacity,omitempty" help:"'number' of unfinished jobs at most; 0: the bucket's bound only"`

	// 0: the bucket's bound only.
	MaxInFlight *int64 `setting:"max_in_flight,redis=4,change" json:"max_in_flight,omitempty" help:"'number' of jobs in flight at most; 0: the bucket's bound only"`

	// Departures in each of its turns.
	Weight *int64 `setting:"weight,redis=5,change" json:"weight,omitempty" help:"'number' of departures in each of its turns, 1 to 1000"`

	// What departures cost at most in any window of that length, in place of the budgets of all; none: no budget, in Go a list that is
	// empty and not nil.
	Budgets Budgets `setting:"budgets,redis=9,change" json:"budgets,omitzero" help:"what departures cost at most in any window of that length, 'amounts' such as '90000 tokens/m'; none: no budget"`

	// Departures at most in any window of that length, in place of the quotas of all; none: no quota, in Go a list that is empty and not nil.
	Quotas Quotas `setting:"quotas,redis=10,change" json:"quotas,omitzero" help:"departures at most in any window of that length, 'numbers' such as '1000/d' or '1000/d, 100/h'; none: no quota"`
}

// OwnFlow holds the settings of one flow. A group has only the bounds and the pause.
type OwnFlow struct {
	OwnBounds `setting:",squash"`

	// Scripts do not interpret the delivery settings: each is a line of JSON after the numbers. All may hold credentials. The API never returns them unmasked,
	// and the command line reads headers and secrets in their own formats.
	URL     string            `setting:"url,redis=6,change" help:"'url' for its jobs that name no url"`
	Headers map[string]string `setting:"headers,redis=7,change"` // sent with its deliveries
	Secrets []string          `setting:"secrets,redis=8,change"` // that sign its deliveries

	Pause *Pause // nil if it is not paused

	Disabled *Disabled // nil if it is not disabled
}

// SecretFingerprint returns the first 12 hex digits of a secret's SHA-256: it names the secret without revealing it.
func SecretFingerprint(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:FingerprintBytes])
}

// FingerprintBytes is the length of a [SecretFingerprint] in bytes, of two digits each.
const FingerprintBytes = 6

// SecretFingerprints returns the fingerprints of the secrets, in their order.
func (o *OwnFlow) SecretFingerprints() []string {
	var prints []string
	for _, secret := range o.Secrets {
		prints = append(prints, SecretFingerprint(secret))
	}
	return prints
}

// Disabled says that a flow sends nothing and takes no jobs until an operator enables it: its receiver is gone, or has failed for too long. See
// [Breaker].
type Disabled struct {
	Since  time.Time
	Reason string // of the response that disabled it, one word; "" if unknown
}

// String returns a sentence without its subject.
func (d *Disabled) String() string {
	return "disabled since " + clockText(d.Since) + inParens(d.Reason)
}

// IsZero reports whether the flow has no settings of its own. Being paused or disabled is not a setting.
func (o *OwnFlow) IsZero() bool { return len(setting.Given(o)) == 0 }
