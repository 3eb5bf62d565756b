package dispatcher

import (
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

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
	own *shaper.OwnDelivery
	err error
}

// of reads a text, and reports whether it was new.
func (o *ownDeliveries) of(text string) (own *shaper.OwnDelivery, isNew bool, err error) {
	if known, ok := o.read[text]; ok {
		return known.own, false, known.err
	}
	if o.read == nil || len(o.read) == maxOwnTexts || o.bytes+len(text) > maxOwnBytes {
		o.read, o.bytes = map[string]ownRead{}, 0
	}
	own, err = codec.ParseOwnDelivery(text)
	if len(text) <= maxOwnBytes {
		o.read[text] = ownRead{own, err}
		o.bytes += len(text)
	}
	return own, true, err
}

// ownDelivery is what a flow has of its own for the delivery of a job, by what a claim
// said. A text that nobody can read is told once, and the error keeps the job back: to
// deliver it by the bucket's settings could send it elsewhere, or unsigned.
func (d *bucketLoop) ownDelivery(flow, text string) (*shaper.OwnDelivery, error) {
	if text == "" {
		return nil, nil
	}
	own, isNew, err := d.own.of(text)
	if err != nil && isNew {
		d.log.ErrorContext(d.life, "the settings of a flow cannot be read: its jobs are not sent until they are set anew", "flow", flow, "error", err)
	}
	return own, err
}
