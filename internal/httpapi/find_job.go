package httpapi

import (
	"errors"
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

// JobID names a job in any bucket.
type JobID struct {
	ID string `json:"id" in:"path"`
}

// FoundJobs are the jobs of an id.
type FoundJobs struct {
	// One for each bucket that has it, in alphabetical order.
	Jobs []*opsview.Job `json:"jobs"`
}

// FindJob finds a job by its id alone.
var FindJob = &Operation[JobID, *FoundJobs]{
	ID: "findJob", Method: "GET", Path: "/v1/jobs/{id}", Roles: []apikey.Role{apikey.RoleRead}, Faults: []code{codeUnknownJob},
	Answer:      "The jobs.",
	Commands:    []string{"job find"},
	Summary:     "Find a job in the buckets of the key",
	Description: "Two buckets may have jobs of one id. Of a settled job only id, bucket and state are known, until its `dedupe_window` ends.",
}

func (o *ops) findJob(r *http.Request, in *JobID) (*FoundJobs, error) {
	unknown := newFault(codeUnknownJob, "no such job: %q: none of the key's buckets has one of this id, or remembers one", in.ID)
	if !shaper.ValidID(in.ID) {
		return nil, unknown
	}
	names, err := o.names(r.Context())
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return isForeign(r, name) })
	if names, err = o.buckets.HaveJob(r.Context(), in.ID, names...); err != nil {
		return nil, err
	}
	slices.Sort(names)
	found := &FoundJobs{Jobs: []*opsview.Job{}}
	for _, name := range names {
		job, err := o.oneJob().show(r, &JobName{BucketName{name}, in.ID})
		if errors.Is(err, shaper.ErrNotFound) { // it was forgotten meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		found.Jobs = append(found.Jobs, job)
	}
	if len(found.Jobs) == 0 {
		return nil, unknown
	}
	return found, nil
}
