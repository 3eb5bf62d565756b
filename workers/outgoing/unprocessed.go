package outgoing

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// fate is what is known about a request without a response.
type fate int

const (
	fateUnknown     fate = iota // the receiver may have processed it
	fateStale                   // it was never sent: the connection had ended before
	fateUnprocessed             // the receiver reports that it did not process it
	fateThrottled               // the receiver asks for less, and may have processed it
)

// Codes of HTTP/2 (RFC 9113, 7).
const (
	codeRefusedStream   = 0x7
	codeEnhanceYourCalm = 0xb
	enhanceYourCalm     = "ENHANCE_YOUR_CALM"
)

// Errors of net/http, which exports none of them. Tests hold these texts against frames of a receiver.
const (
	textUnusable   = "http2: client conn not usable"                                 // a GOAWAY or an end preceded the request
	textGoAway     = "http2: Transport received Server's graceful shutdown GOAWAY"   // the request is above the last stream id
	textGoAwayCode = "http2: Transport received GOAWAY from server ErrCode:"         // the same, of the first stream, with an error code
	textClosed     = "http2: server sent GOAWAY and closed the connection; LastStre" // the request is not above the last stream id
)

// streamError takes over the reset of a stream from net/http: see As of its own type.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return fmt.Sprintf("stream %d: code %d", e.StreamID, e.Code) }

// fateOf returns the fate of a request by the error of its connection. In HTTP/2, a stream above the last id of a GOAWAY was not processed, nor was one
// that was reset with REFUSED_STREAM (RFC 9113, 6.8 and 8.7).
func fateOf(err error) fate {
	if reset, ok := errors.AsType[streamError](err); ok {
		switch reset.Code {
		case codeRefusedStream:
			return fateUnprocessed
		case codeEnhanceYourCalm:
			return fateThrottled
		}
		return fateUnknown
	}
	switch text := err.Error(); {
	case text == textUnusable:
		return fateStale
	case text == textGoAway:
		return fateUnprocessed
	case strings.HasPrefix(text, textGoAwayCode) && !strings.HasSuffix(text, enhanceYourCalm):
		return fateUnprocessed
	case strings.HasPrefix(text, textGoAwayCode), strings.HasPrefix(text, textClosed) && strings.Contains(text, "ErrCode="+enhanceYourCalm):
		return fateThrottled
	}
	return fateUnknown
}

// Bounds of the refusals of an origin.
const (
	maxRefusing = 10 * time.Second // until a refusal counts as a failure: without that, jobs would be sent for ever
	maxOrigins  = 4096             // that are remembered
)

// refusals holds since when origins have refused every request. The zero value is ready to use.
type refusals struct {
	mu    sync.Mutex
	since map[shaper.Origin]time.Time
	count atomic.Int64 // entries of since: most processes never have one
}

// note records a refusal and returns how long the origin has only refused.
func (r *refusals) note(o shaper.Origin) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	since, ok := r.since[o]
	if !ok {
		if r.since == nil || len(r.since) >= maxOrigins {
			r.since = map[shaper.Origin]time.Time{}
		}
		since = now
		r.since[o] = now
	}
	r.count.Store(int64(len(r.since)))
	return now.Sub(since)
}

// clear forgets the refusals of an origin that responded.
func (r *refusals) clear(o shaper.Origin) {
	if r.count.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.since, o)
	r.count.Store(int64(len(r.since)))
}

// unprocessed returns the outcome of a request that the receiver did not process: the job is returned unsent, or the attempt has failed where the
// receiver has refused every request for a while.
func (r *refusals) unprocessed(o shaper.Origin, err error) shaper.Outcome {
	refusing := r.note(o)
	if refusing <= maxRefusing {
		return shaper.Returned(workers.ReasonUnprocessed)
	}
	outcome := workers.ClassifyError(fmt.Errorf("the receiver has refused every request for %s: %w", refusing.Round(time.Second), err))
	return outcome
}

// throttled returns the outcome of ENHANCE_YOUR_CALM. It is judged as a 429 that names no time.
func throttled(err error) shaper.Outcome {
	outcome := workers.ClassifyError(err)
	outcome.Reason, outcome.Signal = workers.ReasonEnhanceYourCalm, shaper.SignalThrottled
	return outcome
}
