package httpapi

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Sizes of a list of jobs or dead letters.
const (
	jobsAtOnce = 100
	maxJobs    = 1000
)

// listed says what a list of jobs is to have.
type listed struct {
	cursor   string
	limit    int
	payloads bool
}

// of is the bucket whose jobs are listed.
func (l *listed) of(bucket operator.Bucket) operator.Bucket {
	if l.payloads {
		return bucket
	}
	return bucket.WithoutPayloads()
}

// listQuery reads what a list is to have, and gives every other name of the query to part.
func listQuery(r *http.Request, part func(d *jobDecoder, name, text string)) (list listed, _ *fault) {
	var d jobDecoder // for its faults
	list.limit = jobsAtOnce
	for name, values := range r.URL.Query() {
		switch text := values[len(values)-1]; name {
		case "cursor":
			list.cursor = text
		case "payload":
			if list.payloads = text == "true"; !list.payloads && text != "false" {
				d.fail(name, "want true or false")
			}
		case "limit":
			n, err := strconv.Atoi(text)
			if list.limit = n; err != nil || n < 1 || n > maxJobs {
				d.fail(name, "want 1 to "+strconv.Itoa(maxJobs))
			}
		default:
			part(&d, name, text)
		}
	}
	if len(d.errs) > 0 {
		return list, invalid(fieldErrors(errors.Join(d.errs...)))
	}
	return list, nil
}

// listJobs answers jobs that wait or are in flight, and where to go on: GET /v1/buckets/{bucket}/jobs.
func (o *ops) listJobs(w http.ResponseWriter, r *http.Request) {
	var filter operator.JobFilter
	bucket := r.PathValue("bucket")
	list, f := listQuery(r, func(d *jobDecoder, name, text string) {
		switch name {
		case "state":
			filter.State = shaper.State(text)
		case "flow":
			filter.Flow = &text
		case "group":
			filter.Group = &text
		case "since":
			filter.Since = d.instant(name, text)
		default:
			d.fail(name, "is not taken here: want state, flow, group, since, payload, limit or cursor")
		}
	})
	if f != nil {
		f.write(w, r)
		return
	}
	page, err := list.of(o.buckets.Bucket(bucket)).Find(r.Context(), filter, list.cursor, list.limit)
	if err != nil {
		o.controlFault(r, bucket, err).write(w, r)
		return
	}
	answer := opsview.JobPage{Jobs: make([]*opsview.Job, len(page.Jobs)), Looked: page.Looked, Next: page.Next}
	for i := range page.Jobs {
		view := opsview.JobOf(&page.Jobs[i])
		// One job's own address tells what holds it back, and where it is.
		view.Why, view.BlockedBy, view.Position, view.ETA = "", nil, nil, view.Due
		answer.Jobs[i] = view
	}
	writeJSON(w, http.StatusOK, answer)
}
