package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// request makes the request of an attempt at now. Its error is a
// [workers.ErrInvalid], or an errFlow. GetBody is nil, so that whoever would send
// the request again cannot: net/http does it unasked where a header is called
// Idempotency-Key.
func (c Config) request(ctx context.Context, attempt *shaper.Attempt, now time.Time) (*http.Request, shaper.Origin, error) {
	own, err := c.ownOf(attempt.Own)
	if err != nil {
		return nil, shaper.Origin{}, err
	}
	target, err := c.targetOf(attempt.URL, own.url)
	err = errors.Join(err, checkMethod(attempt.Method), checkHeaders(attempt.Headers))
	if err != nil {
		return nil, shaper.Origin{}, fmt.Errorf("%w: %w", workers.ErrInvalid, err)
	}
	h := header(attempt, now)
	if own.trusts(target.origin) {
		own.write(h, attempt, now)
	}
	req := &http.Request{
		Method:        attempt.Method,
		URL:           target.url,
		Header:        h,
		Body:          io.NopCloser(bytes.NewReader(attempt.Payload)),
		ContentLength: int64(len(attempt.Payload)),
	}
	if req.Method == "" {
		req.Method = http.MethodPost
	}
	return req.WithContext(ctx), target.origin, nil
}

// header returns the headers of an attempt: the defaults, the job's over them,
// ours over both. Those of its flow, see own, lie over the job's.
func header(attempt *shaper.Attempt, now time.Time) http.Header {
	h := make(http.Header, len(attempt.Headers)+5)
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "tundish/1")
	for name, value := range attempt.Headers {
		h.Set(name, value)
	}
	h.Set("webhook-id", attempt.ID)
	h.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	h.Set("tundish-attempt", strconv.Itoa(attempt.Number))
	return h
}
