package shaper

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/tundish-io/tundish/admission"
)

// ReasonFlowSettings is the reason of an attempt that was not made because no worker
// can use what the job's flow has of its own. It is tried again, as an operator may mend
// the settings meanwhile; after the last attempt the job is a dead letter to be redriven.
const ReasonFlowSettings = "flow_settings"

// OwnDelivery is what a flow has of its own for its deliveries, see [FlowSetting]. It
// holds credentials: it neither prints nor marshals. Attempts share it: do not change it.
type OwnDelivery struct {
	URL     string            `json:"-"` // "" where it has none
	Headers map[string]string `json:"-"`
	Secrets []string          `json:"-"`
}

// String withholds all of it.
func (OwnDelivery) String() string { return "(settings of a flow)" }

// GoString withholds all of it.
func (o OwnDelivery) GoString() string { return o.String() }

// OwnFlow are the settings that one flow has of its own, over those of all flows of
// its bucket. What is zero or nil is as for all.
type OwnFlow struct {
	Rate        admission.Rate
	Burst       *int64
	Capacity    *int64
	MaxInFlight *int64
	Weight      *int64

	URL     string
	Headers map[string]string
	Secrets []string

	Pause *Pause // nil if the flow is not paused

	Disabled *Disabled // nil if it is not disabled
}

// SecretFingerprint names a secret of a flow without telling it: the first 12 digits, in hex, of its SHA-256.
func SecretFingerprint(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:FingerprintBytes])
}

// FingerprintBytes are the bytes of a [SecretFingerprint], each two digits.
const FingerprintBytes = 6

// SecretFingerprints are those of the secrets, in their order.
func (o *OwnFlow) SecretFingerprints() []string {
	var prints []string
	for _, secret := range o.Secrets {
		prints = append(prints, SecretFingerprint(secret))
	}
	return prints
}

// Disabled says that a flow sends nothing and takes no jobs, until an operator enables it: its receiver is gone, or has not worked
// for too long. See [Breaker].
type Disabled struct {
	Since  time.Time
	Reason string // of the answer that disabled it, one word; "" where none is known
}

// String says it in a sentence without its subject.
func (d *Disabled) String() string { return "disabled since " + clockText(d.Since) + because(d.Reason) }

// IsZero reports whether the flow has no settings of its own; a pause is none, nor is that it is disabled.
func (o *OwnFlow) IsZero() bool {
	return o.Rate.IsZero() && o.Burst == nil && o.Capacity == nil && o.MaxInFlight == nil && o.Weight == nil &&
		o.URL == "" && o.Headers == nil && o.Secrets == nil
}
