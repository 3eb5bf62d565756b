package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

// jobView is a job as GET shows it. Its headers are not shown: they may hold
// credentials. Of a settled job only id, bucket and state are known.
type jobView struct {
	ID           string               `json:"id"`
	Bucket       string               `json:"bucket"`
	Flow         *string              `json:"flow,omitempty"`
	Group        string               `json:"group,omitempty"`
	State        shaper.State         `json:"state"`
	Why          string               `json:"why,omitempty"`
	BlockedBy    []shaper.BlockedBy   `json:"blocked_by,omitempty"` // what keeps it, one word each
	Attempts     *int                 `json:"attempts,omitempty"`
	Lost         int                  `json:"lost,omitempty"`
	KeptAttempts int                  `json:"kept_attempts,omitempty"` // how many …/attempts lists
	Position     *int64               `json:"position,omitempty"`
	ETA          *time.Time           `json:"eta,omitempty"`         // earliest departure of a waiting job
	LeaseUntil   *time.Time           `json:"lease_until,omitempty"` // in flight
	DiedAt       *time.Time           `json:"died_at,omitempty"`
	EnqueuedAt   *time.Time           `json:"enqueued_at,omitempty"`
	URL          string               `json:"url,omitempty"`
	Method       string               `json:"method,omitempty"`
	LastResponse *shaper.LastResponse `json:"last_response,omitempty"`
	Payload      json.RawMessage      `json:"payload,omitempty"`
	PayloadBytes []byte               `json:"payload_base64,omitempty"` // a payload that is not JSON
}

type attemptsView struct {
	Attempts []opsview.Attempt `json:"attempts"`
}

func viewOf(info *shaper.JobInfo) *jobView {
	view := &jobView{ID: info.ID, Bucket: info.Bucket, State: info.State}
	if info.Enqueued.IsZero() {
		return view
	}
	view.Flow, view.Attempts, view.Lost = &info.Flow, &info.Attempts, info.Lost
	view.Group, view.KeptAttempts = info.Group, len(info.LastAttempts)
	view.Why, view.BlockedBy, view.ETA = info.Why(), info.BlockedBy(), instant(info.Earliest())
	view.EnqueuedAt, view.LeaseUntil, view.DiedAt = instant(info.Enqueued), instant(info.Deadline), instant(info.Died)
	view.URL, view.Method = info.URL, info.Method
	if info.State == shaper.StateQueued {
		view.Position = &info.Position
	}
	if info.Last != (shaper.LastResponse{}) {
		view.LastResponse = &info.Last
	}
	if json.Valid(info.Payload) {
		view.Payload = info.Payload
	} else {
		view.PayloadBytes = info.Payload
	}
	return view
}

// showJob answers a job. Its bucket may have left the
// configuration: GET /v1/buckets/{bucket}/jobs/{id}.
func (p *producer) showJob(w http.ResponseWriter, r *http.Request) {
	p.withJob(w, r, func(bucket, id string) error {
		info, err := p.jobs.Job(r.Context(), bucket, id)
		if key := keyOf(r); err == nil && key != nil && !key.has([]Role{RoleRead}) && !p.isOf(key, &info) {
			err = shaper.ErrNotFound
		}
		if err == nil {
			writeJSON(w, http.StatusOK, viewOf(&info))
		}
		return err
	})
}

// jobAttempts answers how the last attempts of a job ended: GET /v1/buckets/{bucket}/jobs/{id}/attempts.
func (p *producer) jobAttempts(w http.ResponseWriter, r *http.Request) {
	p.withJob(w, r, func(bucket, id string) error {
		info, err := p.jobs.Job(r.Context(), bucket, id)
		if err == nil {
			writeJSON(w, http.StatusOK, attemptsView{opsview.Attempts(info.LastAttempts)})
		}
		return err
	})
}

// cancelJob cancels a job that waits: DELETE /v1/buckets/{bucket}/jobs/{id}.
func (p *producer) cancelJob(w http.ResponseWriter, r *http.Request) {
	p.withJob(w, r, func(bucket, id string) error {
		if key := keyOf(r); key != nil && key.isBound() {
			info, err := p.jobs.Job(r.Context(), bucket, id)
			if err != nil {
				return err
			}
			if !p.isOf(key, &info) {
				return shaper.ErrNotFound
			}
		}
		state, err := p.jobs.Cancel(context.WithoutCancel(r.Context()), bucket, id)
		switch {
		case err != nil:
			return err
		case state == shaper.StateCancelled:
			p.log.InfoContext(r.Context(), "job cancelled", "bucket", bucket, "job", id, "key", keyName(r), "request_id", requestID(r))
			writeJSON(w, http.StatusOK, &jobView{ID: id, Bucket: bucket, State: state})
		default:
			problem := newFault(codeConflict, "job %q is %s: only a job that waits can be cancelled", id, state).problem(r)
			problem.State = state
			problem.write(w)
		}
		return nil
	})
}

// isOf reports whether a job is in a flow and a group of the key. A settled job is: only its
// state is known.
func (p *producer) isOf(key *Key, info *shaper.JobInfo) bool {
	if !key.isBound() || info.Enqueued.IsZero() {
		return true
	}
	bucket, err := p.jobs.Bucket(info.Bucket)
	return err == nil && key.mayEnqueue(&bucket, info.Group, info.Flow)
}

// withJob calls do with the bucket and the id of the path, and answers the
// error that it returns.
func (p *producer) withJob(w http.ResponseWriter, r *http.Request, do func(bucket, id string) error) {
	bucket, id := r.PathValue("bucket"), r.PathValue("id")
	err := shaper.ErrNotFound
	if shaper.ValidID(id) {
		err = do(bucket, id)
	}
	switch {
	case err == nil:
	case errors.Is(err, shaper.ErrUnknownBucket):
		newFault(codeUnknownBucket, "bucket %q is not configured", bucket).write(w, r)
	case errors.Is(err, shaper.ErrNotFound):
		newFault(codeUnknownJob, "bucket %q has no job %q, and remembers none", bucket, id).write(w, r)
	default:
		p.store.of(r, err).write(w, r)
	}
}
