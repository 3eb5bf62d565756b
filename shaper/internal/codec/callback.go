package codec

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// IsMade reports whether this program generated the job of an id for a hook or a callback. Such a job has no callback, and a hook's job raises
// no event: see lua/lib/outbox.lua.
func IsMade(id string) bool {
	return strings.HasPrefix(id, shaper.HookID) || strings.HasPrefix(id, shaper.CallbackID)
}

// Callback is the outcome of a job, to be delivered.
type Callback struct {
	At     time.Time // when the job ended, by the clock of Redis
	Result shaper.JobResult

	CallbackURL, FailureURL string // that the job names

	Bundle      string // of the job, "" none
	OnlyCounted bool   // nothing but the bundle's count is to be updated
	WasDead     bool   // the bundle has counted it as dead before
}

// OpenCallback reads a callback as scripts write it: see lua/lib/callbacks.lua.
func OpenCallback(bucket, name, text string) (Callback, error) {
	at, rest, ok1 := strings.Cut(name, " ")
	_, id, ok2 := strings.Cut(rest, " ")
	micros, err1 := strconv.ParseInt(at, 10, 64)
	first, rest, ok3 := strings.Cut(text, "\n")
	second, _, ok4 := strings.Cut(rest, "\n")
	job, err2 := Open(first + "\n")
	if !ok1 || !ok2 || !ok3 || !ok4 || err1 != nil || err2 != nil {
		return Callback{}, fmt.Errorf("bucket %q: the callback %q in Redis is not one of ours", bucket, name)
	}
	c := Callback{At: time.UnixMicro(micros), CallbackURL: job.CallbackURL, FailureURL: job.FailureURL, Bundle: job.Bundle, OnlyCounted: job.OnlyCounted, WasDead: job.WasDead}
	var err error
	switch {
	case strings.HasPrefix(second, "{"):
		c.Result, err = OpenResult(bucket, id, rest)
	case second == CodeOf(shaper.StateCancelled):
		c.OnlyCounted = true
		c.Result = shaper.JobResult{ID: id, Bucket: bucket, Flow: job.Flow, Group: job.Group, Owner: job.Owner(), State: shaper.StateCancelled}
	default:
		c.Result, err = diedWaiting(bucket, id, &job, second)
	}
	if err != nil {
		return Callback{}, fmt.Errorf("bucket %q: the callback %q: %w", bucket, name, err)
	}
	return c, nil
}

// diedWaiting returns the result of a job that became a dead letter while it waited. It has the response of the job's last attempt, if any, as
// far as Redis keeps it.
func diedWaiting(bucket, id string, job *Stored, metaText string) (shaper.JobResult, error) {
	m, err := parseMeta(metaText)
	if err != nil {
		return shaper.JobResult{}, err
	}
	died := shaper.JobInfo{
		ID: id, Bucket: bucket, Flow: job.Flow, Group: job.Group, Owner: job.Owner(), Last: m.last, Attempts: int(m.attempts), Enqueued: InstantOf(job.Enqueued),
	}
	return died.Result(), nil
}
