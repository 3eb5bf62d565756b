package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

const jobsAtOnce = 100 // jobs or dead letters on a page without a limit

// trimPayloads returns the bucket without the payloads of its jobs, unless the page has them.
func (p *Page) trimPayloads(bucket operator.Bucket) operator.Bucket {
	if p.Payload {
		return bucket
	}
	return bucket.WithoutPayloads()
}

func (p *Page) limit() int {
	if p.Limit == 0 {
		return jobsAtOnce
	}
	return p.Limit
}

// Asked describes for people the jobs of their state that a query selects; "" if it selects all.
func (q *JobQuery) Asked() string {
	var asked strings.Builder
	add := func(given bool, format string, args ...any) {
		if given {
			fmt.Fprintf(&asked, format, args...)
		}
	}
	if q.Group != nil {
		add(true, " of group %q", *q.Group)
	}
	if q.Flow != nil {
		add(true, " of flow %q", *q.Flow)
	}
	add(!q.Since.IsZero() || !q.Until.IsZero(), ", sent")
	add(!q.Since.IsZero(), " at %s or later", q.Since.UTC().Format(time.RFC3339))
	add(!q.Since.IsZero() && !q.Until.IsZero(), " and")
	add(!q.Until.IsZero(), " before %s", q.Until.UTC().Format(time.RFC3339))
	return asked.String()
}

// listJobs returns one page of jobs that wait or are in flight, and the cursor of the next.
func (o *ops) listJobs(r *http.Request, in *JobQuery) (*opsview.JobPage, error) {
	filter := operator.JobFilter{State: in.State, Flow: in.Flow, Group: in.Group, Since: in.Since, Until: in.Until}
	page, err := in.trimPayloads(o.buckets.Bucket(in.Bucket)).Find(r.Context(), filter, in.Cursor, in.limit())
	answer := &opsview.JobPage{Jobs: make([]*opsview.Job, len(page.Jobs)), Looked: page.Looked, Next: page.Next}
	for i := range page.Jobs {
		view := opsview.JobOf(&page.Jobs[i])
		// The page of a single job says why it waits, and its position.
		view.Why, view.BlockedBy, view.Position, view.ETA = "", nil, nil, view.Due
		if ended := page.Jobs[i].Ended; ended != nil {
			view.LastAttempts = opsview.Attempts(ended.Deliveries())
		}
		answer.Jobs[i] = view
	}
	return answer, err
}
