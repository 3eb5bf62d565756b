package opsview

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Job is a job as JSON shows it. Fields that do not apply to its state are left out. Of a settled job only id, bucket and state are known.
type Job struct {
	ID     string  `json:"id"`
	Bucket string  `json:"bucket"`
	Flow   *string `json:"flow,omitempty"`

	// Only in a bucket with groups.
	Group string       `json:"group,omitempty"`
	State shaper.State `json:"state"`

	// Why the job waits.
	Why string `json:"why,omitempty"`

	// The same in words for programs. Only of a waiting job.
	BlockedBy []shaper.Blocker `json:"blocked_by,omitempty"`

	// Deliveries that ended.
	Attempts *int `json:"attempts,omitempty"`

	// Deliveries that spent no attempt: their dispatcher died or lost its lease, the downstream named a time to wait for, or they came before a
	// redrive.
	Lost int `json:"lost,omitempty"`

	// How many outcomes …/attempts lists.
	KeptAttempts int    `json:"kept_attempts,omitempty"`
	Position     *int64 `json:"position,omitempty"`

	// Estimated departure, as in the receipt. Not while the bucket is paused.
	ETA *time.Time `json:"eta,omitempty"`

	// For a delayed job or a retry: the earliest time of its departure.
	Due        *time.Time `json:"due,omitempty"`
	LeaseUntil *time.Time `json:"lease_until,omitempty"` // in flight
	DiedAt     *time.Time `json:"died_at,omitempty"`
	EnqueuedAt *time.Time `json:"enqueued_at,omitempty"`

	// For a job that is done, if the bucket keeps its result: when its last attempt departed.
	DepartedAt *time.Time `json:"departed_at,omitempty"`

	// The same: from then until it had ended.
	Took *float64 `json:"took_seconds,omitempty"`

	// Of a job that a hook, a schedule or a callback made: its origin, and /*** for the rest.
	URL    string `json:"url,omitempty"`
	Method string `json:"method,omitempty"`

	// Credentials, recognised by name, are ***. Only for the role read.
	Headers      map[string][]string  `json:"headers,omitempty"`
	LastResponse *shaper.LastResponse `json:"last_response,omitempty"`
	Payload      json.RawMessage      `json:"payload,omitempty"`
	PayloadBytes []byte               `json:"payload_base64,omitempty"` // a payload that is not JSON

	// Only for a redriven job, as far as known: its state before. With a cause, last_response is of that time.
	BeforeRedrive *BeforeRedrive `json:"before_redrive,omitempty"`

	// The outcomes of the last attempts, the oldest first. Only for the role read, and in a list of jobs only for done jobs, with each delivery.
	LastAttempts []Attempt `json:"last_attempts,omitempty"`
}

// BeforeRedrive is the state of a job while it was dead.
type BeforeRedrive struct {
	// Deliveries before it died. They are counted in lost.
	Deliveries int `json:"deliveries"`

	// Why it was dead.
	Cause string `json:"cause,omitempty"`
}

// JobOf returns the view of a job for the client that enqueued it: without headers, which may hold credentials.
func JobOf(info *shaper.JobInfo) *Job {
	view := &Job{ID: info.ID, Bucket: info.Bucket, State: info.State}
	if info.Enqueued.IsZero() {
		view.addEnd(info.Ended)
		return view
	}
	view.Flow, view.Attempts, view.Lost = &info.Flow, &info.Attempts, info.Lost
	view.Group, view.KeptAttempts = info.Group, len(info.LastAttempts)
	view.Why, view.BlockedBy, view.ETA = info.Why(), info.BlockedBy(), instant(info.Earliest())
	view.EnqueuedAt, view.LeaseUntil, view.DiedAt = instant(info.Enqueued), instant(info.Deadline), instant(info.Died)
	view.URL, view.Method, view.Due = urlOf(info), info.Method, instant(info.Due)
	if info.State == shaper.StateQueued {
		view.Position = &info.Position
	}
	if info.Last != (shaper.LastResponse{}) {
		view.LastResponse = &info.Last
	}
	if deliveries, cause, redriven := info.BeforeRedrive(); redriven {
		view.BeforeRedrive = &BeforeRedrive{deliveries, cause}
	}
	if staysJSON(info.Payload) {
		view.Payload = info.Payload
	} else {
		view.PayloadBytes = info.Payload
	}
	return view
}

// staysJSON reports whether a payload is still JSON inside of a response. Readers such as Go's refuse more than 10,000 levels, and a response adds some.
func staysJSON(payload []byte) bool {
	const most, added = 10_000, 8
	if !json.Valid(payload) {
		return false
	}
	if bytes.Count(payload, []byte("["))+bytes.Count(payload, []byte("{")) <= most-added {
		return true
	}
	return json.Valid(slices.Concat(bytes.Repeat([]byte("["), added), payload, bytes.Repeat([]byte("]"), added)))
}

// addEnd adds the stored result of a settled job; nil is none.
func (j *Job) addEnd(r *shaper.JobResult) {
	if r == nil {
		return
	}
	ended := r.JSON()
	j.Flow, j.Group, j.Attempts, j.EnqueuedAt = &r.Flow, r.Group, &r.Attempts, ended.EnqueuedAt
	if r.Departed.IsZero() {
		return
	}
	j.DepartedAt, j.Took = ended.DepartedAt, &ended.Took
	if last := (shaper.LastResponse{Status: ended.Status, Reason: r.Reason, Detail: r.Detail}); last != (shaper.LastResponse{}) {
		j.LastResponse = &last
	}
}

// urlOf returns the URL of a job as it is shown. URLs of hooks, schedules and callbacks are secrets of the configuration, or of another job.
func urlOf(info *shaper.JobInfo) string {
	for _, beginning := range []string{shaper.HookID, shaper.ScheduleID, shaper.CallbackID} {
		if strings.HasPrefix(info.ID, beginning) {
			return shaper.RedactedURL(info.URL)
		}
	}
	return info.URL
}

// SentWithin returns the deliveries of a listed job that departed at since or later and before until, the oldest first. A zero time is no bound. A list
// of done jobs matches by them.
func (j *Job) SentWithin(since, until time.Time) []Attempt {
	return slices.DeleteFunc(slices.Clone(j.LastAttempts), func(a Attempt) bool {
		return !since.IsZero() && a.At.Before(since) || !until.IsZero() && !a.At.Before(until)
	})
}

// JobForOperators returns the full view of a job, with its headers except credentials, and the outcomes of its last attempts.
func JobForOperators(info *shaper.JobInfo) *Job {
	view := JobOf(info)
	view.Headers = redactedHeaders(info.Headers)
	if len(info.LastAttempts) > 0 {
		view.LastAttempts = Attempts(info.LastAttempts)
	}
	return view
}

// credentialMarks are parts of the names of headers that hold credentials.
var credentialMarks = []string{"auth", "cookie", "token", "secret", "passw", "key", "credential", "session", "signature", "jwt"}

// isCredential reports whether a header holds a credential, judged by its name.
func isCredential(name string) bool {
	name = strings.ToLower(name)
	return name != "idempotency-key" && slices.ContainsFunc(credentialMarks, func(mark string) bool { return strings.Contains(name, mark) })
}

// redactedHeaders returns headers as they are shown: credentials as "***". None is nil.
func redactedHeaders(headers map[string][]string) map[string][]string {
	if len(headers) == 0 {
		return nil
	}
	shown := maps.Clone(headers)
	for name := range shown {
		if isCredential(name) {
			shown[name] = []string{"***"}
		}
	}
	return shown
}

// Attempt is the outcome of a delivery of a job.
type Attempt struct {
	// When it departed, by the clock of Redis.
	At time.Time `json:"at"`

	// The number of the delivery. Lost deliveries have numbers too.
	Number int `json:"number"`

	// From the departure to the outcome. 0 if nothing was sent.
	Took float64 `json:"took_seconds"`

	// HTTP status.
	Status int    `json:"status,omitempty"`
	Reason string `json:"reason,omitempty" jsonschema:"example=http_500"`

	// The error with its addresses, which the error of the job hides from the client that enqueued it.
	Detail string `json:"detail,omitempty"`

	// held: the downstream named a time to wait for. done: of the last delivery of a job that is done and whose result is kept.
	Result string `json:"result" jsonschema:"enum=retry,enum=dead,enum=held,enum=done"`
}

// Attempts returns the views of attempts for clients that may read the bucket, in their order; never nil.
func Attempts(list []shaper.JobAttempt) []Attempt {
	views := make([]Attempt, len(list))
	for i, a := range list {
		views[i] = Attempt{
			At: a.At.UTC(), Number: a.Number, Took: a.Took.Seconds(), Status: a.Status, Reason: a.Reason, Detail: cmp.Or(a.Private, a.Detail), Result: a.Result.String(),
		}
	}
	return views
}
