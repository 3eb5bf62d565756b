package httpapi

import (
	"net/http"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/redisconn"
)

// Status summarizes all buckets.
type Status struct {
	// Buckets that the caller's key is for, also those removed from the configuration.
	Buckets int64 `json:"buckets"`

	// Their unfinished jobs: those that wait, also for their time, and those in flight.
	Unfinished int64 `json:"unfinished"`
	InFlight   int64 `json:"in_flight"`

	// Their dead letters.
	Dead int64 `json:"dead"`

	// What is wrong with Redis, such as that it is out of memory. Absent if it works.
	Redis string `json:"redis,omitempty"`

	// Buckets that need attention.
	Notes []BucketNotes `json:"notes"`
}

// BucketNotes are the notes on a bucket that needs attention.
type BucketNotes struct {
	Bucket string   `json:"bucket"`
	Notes  []string `json:"notes"`

	// For each of them the command that helps, without the name of the program; "" where there is none. Only on request.
	Help []string `json:"help,omitempty" jsonschema:"example=bucket resume webhooks"`
}

// StatusQuery selects the parts of a status.
type StatusQuery struct {
	// `true` adds to each note the command that helps.
	Help bool `json:"help" in:"query"`
}

// ShowStatus sums up all buckets.
var ShowStatus = &Operation[StatusQuery, *Status]{
	ID: "showStatus", Method: "GET", Path: "/v1/status", Roles: []apikey.Role{apikey.RoleRead},
	Commands:    []string{"status"},
	Summary:     "Sum up all buckets, and report which of them need attention",
	Description: "The notes are the same as in `GET /v1/buckets`. Jobs that come or go meanwhile may be counted or not.",
}

func (o *ops) showStatus(r *http.Request, in *StatusQuery) (*Status, error) {
	list, err := o.listBuckets(r, &BucketsQuery{})
	if err != nil {
		return nil, err
	}
	status := &Status{Notes: []BucketNotes{}}
	switch failure := o.pulse.check(r.Context()); failure {
	case redisconn.NoFailure:
	case redisconn.Full:
		status.Redis = failure.Description() + ": no job is stored until it has room; those that it has are delivered"
	default:
		status.Redis = failure.Description()
	}
	for _, b := range list.Buckets {
		status.add(b, in.Help)
	}
	return status, nil
}

func (s *Status) add(b *opsview.Bucket, help bool) {
	s.Buckets++
	s.Unfinished += b.Unfinished
	s.InFlight += b.InFlight
	s.Dead += b.Dead
	if len(b.Notes) > 0 {
		notes := BucketNotes{Bucket: b.Name, Notes: b.Notes}
		if help {
			notes.Help = b.Help
		}
		s.Notes = append(s.Notes, notes)
	}
}
