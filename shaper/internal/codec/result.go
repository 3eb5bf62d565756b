package codec

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// resultHead is the first line of a result in Redis; the body of the response follows it. See lua/lib/results.lua.
type resultHead struct {
	State    shaper.State        `json:"state"`
	Flow     string              `json:"flow,omitempty"`
	Group    string              `json:"group,omitempty"`
	Caller   string              `json:"caller,omitempty"` // its mark
	Status   int                 `json:"status,omitempty"` // of the response; 0: there was none
	Headers  map[string][]string `json:"headers,omitempty"`
	Cut      bool                `json:"cut,omitempty"`
	Broken   bool                `json:"broken,omitempty"`
	Base     string              `json:"base,omitempty"`
	Cause    string              `json:"cause,omitempty"`
	Reason   string              `json:"reason,omitempty"`
	Detail   string              `json:"detail,omitempty"`
	Attempts int                 `json:"attempts"`
	Enqueued int64               `json:"enqueued,omitempty"` // this field and the times below: microseconds, by the clock of Redis
	Departed int64               `json:"departed,omitempty"`
	Took     int64               `json:"took,omitempty"`
	Tried    []attempt           `json:"tried,omitempty"` // before the last attempt; settle.lua adds it, so it is the last field
}

// SealResult returns the two texts of a result that settle.lua takes.
func SealResult(r *shaper.JobResult) (head string, body []byte) {
	h := resultHead{
		State: r.State, Flow: r.Flow, Group: r.Group, Caller: r.Owner.Mark, Cause: r.Cause, Reason: cut(r.Reason, maxReason), Detail: cut(r.Detail, maxDetail), Attempts: r.Attempts,
		Enqueued: microsOf(r.Enqueued), Departed: microsOf(r.Departed), Took: r.Took.Microseconds(),
	}
	if a := r.Answer; a != nil {
		h.Status, h.Headers, h.Cut, h.Broken, h.Base, body = a.Status, a.Headers, a.Cut, a.Broken, a.Base, a.Body
	}
	text, err := json.Marshal(h)
	if err != nil {
		return "", nil // texts, numbers and maps of them always marshal
	}
	return string(text), body
}

// OpenResult reads the text of a result: its head, a line feed, and the body.
func OpenResult(bucket, id, text string) (shaper.JobResult, error) {
	head, body, ok := strings.Cut(text, "\n")
	var h resultHead
	if err := json.Unmarshal([]byte(head), &h); err != nil || !ok {
		return shaper.JobResult{}, fmt.Errorf("bucket %q: the result of job %q in Redis is not one of ours", bucket, id)
	}
	r := shaper.JobResult{
		ID: id, Bucket: bucket, Flow: h.Flow, Group: h.Group, Owner: shaper.Owner{Mark: h.Caller}, State: h.State, Cause: h.Cause, Reason: h.Reason, Detail: h.Detail, Attempts: h.Attempts,
		Enqueued: InstantOf(h.Enqueued), Departed: InstantOf(h.Departed), Took: time.Duration(h.Took) * time.Microsecond,
	}
	for i := range h.Tried {
		if earlier, ok := h.Tried[i].open(); ok {
			r.Earlier = append(r.Earlier, earlier)
		}
	}
	if h.Status != 0 {
		r.Answer = &shaper.Answer{Status: h.Status, Headers: h.Headers, Body: []byte(body), Cut: h.Cut, Broken: h.Broken, Base: h.Base}
	}
	return r, nil
}

func microsOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
