package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
	"github.com/tundish-io/tundish/workers/outgoing"
)

// bodyMaker makes the body of an attempt. It brings the headers of the job and its flow, in h, into the format.
type bodyMaker func(attempt *shaper.Attempt, h http.Header) ([]byte, error)

// request builds the request of an attempt at now. Its error is a [workers.ErrInvalid], or an errFlow.
func (c *Config) request(attempt *shaper.Attempt, now time.Time, bodyOf bodyMaker) (*outgoing.Request, error) {
	own, err := c.ownOf(attempt.Own)
	if err != nil {
		return nil, err
	}
	target, err := c.checkedTarget(attempt, own)
	if err != nil {
		return nil, invalid(err)
	}
	id := messageID(attempt.ID)
	h := header(attempt, id, len(attempt.Payload) > 0 || c.Format.makesEvents(), now)
	if own.trusts(target.Origin) {
		own.setHeaders(h)
	}
	body, err := bodyOf(attempt, h)
	if err != nil {
		return nil, invalid(err)
	}
	if isBodyless(attempt.Method) && len(body) > 0 {
		return nil, invalid(errBody(attempt.Method))
	}
	if signers := c.signersFor(own, target.Origin); len(signers) > 0 {
		signatures, err := signature(signers, id, now, body)
		if err != nil {
			return nil, invalid(err)
		}
		h.Set("Webhook-Signature", signatures)
	}
	return &outgoing.Request{Method: attempt.Method, To: target, Header: h, Body: body}, nil
}

// checkedTarget is the target of an attempt, whose method and headers it checks too.
func (c *Config) checkedTarget(attempt *shaper.Attempt, own *own) (outgoing.Target, error) {
	target, err := c.targetOf(attempt.URL, own.target)
	return target, errors.Join(err, outgoing.CheckMethod(attempt.Method, methods...), c.checkHeaders(attempt.Headers))
}

func invalid(err error) error { return fmt.Errorf("%w: %w", workers.ErrInvalid, err) }

// header returns the headers of an attempt: the defaults, overridden by the job's, then by ours. The caller overrides the job's with its flow's, see
// own.
func header(attempt *shaper.Attempt, id string, hasBody bool, now time.Time) http.Header {
	const own = 5
	h := make(http.Header, len(attempt.Headers)+own)
	values := make([]string, 0, own)
	set := func(canonical, value string) { // Set would spell the name again and make a slice
		values = append(values, value)
		h[canonical] = values[len(values)-1 : len(values) : len(values)]
	}
	if hasBody {
		set("Content-Type", "application/json")
	}
	set("User-Agent", outgoing.UserAgent)
	for name, values := range attempt.Headers {
		h[http.CanonicalHeaderKey(name)] = slices.Clone(values) // workers share the attempt's
	}
	set("Webhook-Id", id)
	set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	set("Tundish-Attempt", strconv.Itoa(attempt.Number))
	return h
}
