package shaper

import "strings"

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

// parseOwnDelivery reads what claim.lua tells of a flow's settings: their text after
// the first line. It returns nil of a flow that has nothing for its deliveries. The
// error repeats nothing of the text.
func parseOwnDelivery(text string) (*OwnDelivery, error) {
	var own OwnFlow
	if err := readOwnLines(&own, strings.Split("\n"+text, "\n")); err != nil {
		return nil, err
	}
	if own.URL == "" && len(own.Headers) == 0 && len(own.Secrets) == 0 {
		return nil, nil
	}
	return &OwnDelivery{URL: own.URL, Headers: own.Headers, Secrets: own.Secrets}, nil
}

// Bounds of what is kept of texts that were read.
const (
	maxOwnTexts = 1024
	maxOwnBytes = 4 << 20
)

// ownDeliveries keeps what was read, by the text: all jobs of a flow share one. It
// forgets all when it is full. The zero value is ready; it is not for concurrent use.
type ownDeliveries struct {
	read  map[string]ownRead
	bytes int
}

type ownRead struct {
	own *OwnDelivery
	err error
}

// of reads a text, and reports whether it was new.
func (o *ownDeliveries) of(text string) (own *OwnDelivery, isNew bool, err error) {
	if known, ok := o.read[text]; ok {
		return known.own, false, known.err
	}
	if o.read == nil || len(o.read) == maxOwnTexts || o.bytes+len(text) > maxOwnBytes {
		o.read, o.bytes = map[string]ownRead{}, 0
	}
	own, err = parseOwnDelivery(text)
	if len(text) <= maxOwnBytes {
		o.read[text] = ownRead{own, err}
		o.bytes += len(text)
	}
	return own, true, err
}

// ownDelivery is what a flow has of its own for the delivery of a job, by what a claim
// said. A text that nobody can read is told once, and the error keeps the job back: to
// deliver it by the bucket's settings could send it elsewhere, or unsigned.
func (d *drain) ownDelivery(flow, text string) (*OwnDelivery, error) {
	if text == "" {
		return nil, nil
	}
	own, isNew, err := d.own.of(text)
	if err != nil && isNew {
		d.log.ErrorContext(d.life, "the settings of a flow cannot be read: its jobs are not sent until they are set anew", "flow", flow, "error", err)
	}
	return own, err
}
