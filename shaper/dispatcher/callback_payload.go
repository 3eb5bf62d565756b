package dispatcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"time"
	"unicode/utf8"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// outcomeTold is the payload of a callback: as that of a hook, with the result as its data.
type outcomeTold struct {
	Type      string             `json:"type"` // job.done, job.dead or job.dropped
	Timestamp time.Time          `json:"timestamp"`
	Data      *shaper.ResultJSON `json:"data"`
}

// callbackPayload is the payload of a callback, of at most so many bytes: where it would be longer, the body of the answer is cut, then
// its headers go. The same callback always has the same payload.
func callbackPayload(c *codec.Callback, atMost int64) ([]byte, error) {
	told := outcomeTold{Type: "job." + string(c.Result.State), Timestamp: c.At.UTC(), Data: c.Result.JSON()}
	whole, err := encode(&told)
	if err != nil || int64(len(whole)) <= atMost {
		return whole, err
	}
	if c.Result.Answer != nil {
		less, answer := c.Result, *c.Result.Answer
		less.Answer, answer.Cut = &answer, true
		body := answer.Body
		isText := utf8.Valid(body)
		fits := func(n int) []byte {
			for isText && n > 0 && n < len(body) && !utf8.RuneStart(body[n]) {
				n--
			}
			answer.Body = body[:n]
			told.Data = less.JSON()
			if text, err := encode(&told); err == nil && int64(len(text)) <= atMost {
				return text
			}
			return nil
		}
		if fits(0) == nil {
			answer.Headers = nil
		}
		// The first length that is too much, less one.
		if n := sort.Search(len(body)+1, func(n int) bool { return fits(n) == nil }); n > 0 {
			return fits(n - 1), nil
		}
	}
	return nil, fmt.Errorf("the outcome of job %q of bucket %q does not fit into %d bytes: raise max_payload of the bucket that delivers callbacks",
		c.Result.ID, c.Result.Bucket, atMost)
}

func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("write a callback as JSON: %w", err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}
