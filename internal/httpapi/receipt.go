package httpapi

import (
	"net/http"
	"net/url"
	"time"

	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
)

// jobAnswer is the response for an admitted job.
type jobAnswer struct {
	ID        string       `json:"id"`
	Bucket    string       `json:"bucket"`
	Flow      string       `json:"flow"`
	Group     string       `json:"group,omitempty"` // none in a bucket without groups, unless the job names one
	State     shaper.State `json:"state"`
	Position  *int64       `json:"position,omitempty"` // queued now: jobs ahead of it
	ETA       string       `json:"eta,omitempty"`      // queued or scheduled now: expected departure
	Duplicate bool         `json:"duplicate,omitempty"`
}

func admitted(receipt *shaper.Receipt) jobAnswer {
	answer := jobAnswer{
		ID: receipt.ID, Bucket: receipt.Bucket, Flow: receipt.Flow, Group: receipt.Group, State: receipt.State, Duplicate: receipt.Duplicate,
	}
	if receipt.Duplicate {
		return answer // the receipt has no position
	}
	if receipt.State == shaper.StateQueued {
		answer.Position = &receipt.Position
	}
	if eta := instant(receipt.ETA); eta != nil {
		answer.ETA = eta.Format(time.RFC3339Nano) // as time.Time formats it in JSON, at half the cost
	}
	return answer
}

// instant writes a time in UTC to the millisecond. The zero time is absent, and so is
// one after the year 9999, which RFC 3339 and JSON cannot hold.
func instant(t time.Time) *time.Time {
	t = t.UTC().Truncate(time.Millisecond)
	if t.IsZero() || t.Year() > 9999 {
		return nil
	}
	return &t
}

// tellReceipt writes the headers of the response to a job, and the whole response of a refusal. It reports whether the job was admitted.
func (p *producer) tellReceipt(w http.ResponseWriter, r *http.Request, receipt *shaper.Receipt) (isIn bool) {
	p.headers.Set(w.Header(), receipt.Decisions, time.Now())
	httplimit.SetShadowHeader(w.Header(), receipt.Decisions)
	if receipt.Refusal != nil {
		problem := refused(receipt.Refusal).problem(r)
		problem.State = receipt.State
		problem.write(w)
		return false
	}
	w.Header().Set("Location", "/v1/buckets/"+url.PathEscape(receipt.Bucket)+"/jobs/"+url.PathEscape(receipt.ID))
	return true
}

// unknownOutcome returns the problem for jobs that may or may not be enqueued. A repeat with the same ids enqueues no job twice, so the problem lists
// the ids that were generated here.
func (p *producer) unknownOutcome(r *http.Request, receipts []shaper.Receipt, err error) *problem {
	f := p.store.faultOf(r, err)
	switch failure := redisconn.FailureOf(err); {
	case mayHaveRun(err):
		f.Detail = "Redis is not reachable or too slow, and jobs may be in or not: retry under the same ids, and none is doubled"
	case failure != redisconn.NoFailure && len(receipts) > 1: // it refused one of several scripts
		f.Detail = failure.Description() + ", and some of the jobs may be in: retry under the same ids, and none is doubled"
	case failure == redisconn.Full:
		f.Detail = "Redis is out of memory: the job was not stored; retry later"
	}
	problem := f.problem(r)
	for _, receipt := range receipts {
		problem.IDs = append(problem.IDs, receipt.ID)
	}
	return problem
}
