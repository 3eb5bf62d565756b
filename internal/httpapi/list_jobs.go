package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// listJobs answers jobs that wait or are in flight, and where to go on: GET /v1/buckets/{bucket}/jobs.
func (o *ops) listJobs(w http.ResponseWriter, r *http.Request) {
	bucket, query := r.PathValue("bucket"), r.URL.Query()
	var d jobDecoder // for its faults
	var filter operator.JobFilter
	limit := deadAtOnce
	for name, values := range query {
		text := values[len(values)-1]
		switch name {
		case "cursor":
		case "limit":
			n, err := strconv.Atoi(text)
			if limit = n; err != nil || n < 1 || n > maxDead {
				d.fail(name, "want 1 to "+strconv.Itoa(maxDead))
			}
		case "state":
			filter.State = shaper.State(text)
		case "flow":
			filter.Flow = &text
		case "group":
			filter.Group = &text
		case "since":
			at, err := time.Parse(time.RFC3339, text)
			if filter.Since = at; err != nil {
				d.fail(name, "want a time of RFC 3339 such as \"2026-03-01T12:00:00Z\"")
			}
		default:
			d.fail(name, "is not taken here: want state, flow, group, since, limit or cursor")
		}
	}
	if len(d.errs) > 0 {
		invalid(fieldErrors(errors.Join(d.errs...))).write(w, r)
		return
	}
	page, err := o.buckets.Bucket(bucket).Find(r.Context(), filter, query.Get("cursor"), limit)
	if err != nil {
		o.controlFault(r, bucket, err).write(w, r)
		return
	}
	answer := struct {
		Jobs   []*jobView `json:"jobs"`
		Looked int        `json:"looked_at"`
		Next   string     `json:"next,omitempty"`
	}{make([]*jobView, len(page.Jobs)), page.Looked, page.Next}
	for i := range page.Jobs {
		view := viewOf(&page.Jobs[i])
		// One job's own address tells what holds it back, and where it is.
		view.Why, view.BlockedBy, view.Position, view.ETA = "", nil, nil, instant(page.Jobs[i].Due)
		answer.Jobs[i] = view
	}
	writeJSON(w, http.StatusOK, answer)
}
