package workers

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/internal/jsonscan"
	"github.com/tundish-io/tundish/shaper"
)

// isPartial reports whether a 2xx response declares that it may not hold for the whole request: 207 (RFC 4918), or JSON with "errors": true, as bulk
// APIs have it.
func (r *Response) isPartial() bool {
	if r.Status/100 != 2 {
		return false
	}
	if r.Status == http.StatusMultiStatus {
		return true
	}
	if !bytes.Contains(r.Body, []byte(`"errors"`)) || !r.hasJSON() { // the former is the cheap one
		return false
	}
	_, failed := find(r.Body, pointer{"errors"}, func(text string) bool { return text == "true" })
	return failed
}

// partial returns the outcome of a job whose response has parts with statuses of their own. If each part was accepted, the job is done. If none was, the
// job is judged by the least final of the statuses. If some were, a retry would repeat these: the job becomes a dead letter, for an operator to inspect.
// The same holds if the statuses cannot be read.
func (p Policy) partial(r *Response, statuses []int) shaper.Outcome {
	accepted, refused := 0, shaper.Outcome{}
	for _, status := range statuses {
		if status/100 == 2 {
			accepted++
			continue
		}
		part := *r
		part.Status = status
		outcome := p.byStatus(&part)
		if refused.Result == 0 || rankOf(outcome) > rankOf(refused) {
			refused = outcome
		}
	}
	switch {
	case refused.Result == 0 && accepted > 0:
		return p.accepted(r)
	case accepted == 0 && refused.Result != 0:
		refused.Detail = fmt.Sprintf("the receiver answered %d, and refused each of %d parts of the request, at best with %d", r.Status, len(statuses), refused.Status)
		refused.Status, refused.Gone = r.Status, false
		return refused
	}
	outcome := shaper.Dead(ReasonPartial, fmt.Sprintf("the receiver answered %d, and refused %d of %d parts of the request: to send it again would repeat the others", r.Status, len(statuses)-accepted, len(statuses)))
	if len(statuses) == 0 {
		outcome.Detail = fmt.Sprintf("the receiver answered %d, so it may have refused parts of the request, and their statuses cannot be read: a rule in [[buckets.responses]] can judge it", r.Status)
	}
	outcome.Status, outcome.Signal = r.Status, shaper.SignalAccepted
	if refused.Signal == shaper.SignalThrottled {
		outcome.Signal = refused.Signal
	}
	return outcome
}

// rankOf orders outcomes: the least final is the highest.
func rankOf(outcome shaper.Outcome) int {
	switch outcome.Result {
	case shaper.ResultHeld:
		return 3
	case shaper.ResultRetry:
		return 2
	default:
		return 1
	}
}

// maxNesting is the depth in a body down to which a status counts.
const maxNesting = 128

// statusesIn returns the statuses of the parts in a JSON body: the HTTP statuses in members named "status". It is empty if the body is incomplete.
func statusesIn(body []byte) (statuses []int) {
	at := jsonscan.New(body)
	var walk func(depth int)
	walk = func(depth int) {
		at.Parts(func(name []byte) bool {
			switch kind := at.Kind(); {
			case kind == '{' || kind == '[':
				if depth < maxNesting {
					walk(depth + 1)
				}
			case name != nil && isStatusName(name):
				said, _ := textOf(at.Value())
				if status, err := strconv.Atoi(said); err == nil && status >= 200 && status <= 599 && status != http.StatusMultiStatus {
					statuses = append(statuses, status)
				}
			}
			return at.Err() == nil
		})
	}
	walk(0)
	if !at.End() {
		return nil
	}
	return statuses
}

// maxStatusName is room for the longest name of a status.
const maxStatusName = 32

func isStatusName(quoted []byte) bool {
	if len(quoted) > maxStatusName {
		return false
	}
	name, _ := jsonscan.Text(quoted, maxStatusName)
	switch strings.ToLower(strings.ReplaceAll(name, "_", "")) {
	case "status", "statuscode", "httpstatus":
		return true
	}
	return false
}
