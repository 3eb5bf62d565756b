package dispatcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// Hook is where a dispatcher tells of events in its buckets: each becomes a job of another bucket, or of the same. Of one kind there is
// at most one a minute for each flow, with a count. It is told once, if the bucket of the hook remembers ids for long enough.
//
// What becomes of jobs that hooks made raises no event.
type Hook struct {
	Events []shaper.Event // its kinds; a bucket notes those that its Events name
	Bucket string         // whose worker delivers the jobs
	URL    string         // of the jobs
	Flow   string         // of the jobs, where the bucket's flows are named by the job
	Group  string         // the same for groups
}

// ourCaller enqueues the jobs of hooks and callbacks, for the limits and the flows of their buckets.
const ourCaller = "tundish"

const (
	eventsAtOnce = 50
	eventsTurn   = time.Second // of one look at a bucket
)

// event is one kind of event of a flow, or of a bucket: how often it came since a time.
type event struct {
	name   string // in Redis
	count  int64
	since  int64 // microseconds
	detail string
}

// moveEvents makes jobs of the events of a bucket. An event stays in Redis until every hook's job is in.
func (d *bucketLoop) moveEvents(ctx context.Context) {
	var moved []any
	for began := time.Now(); ; {
		atMost := eventsAtOnce
		if time.Since(began) > eventsTurn {
			atMost = 0
		}
		reply, err := d.shared.Run(ctx, lua.MoveEvents, d.Keys.Of(lua.MoveEvents), slices.Concat([]any{atMost}, moved)...)
		if err != nil {
			if ctx.Err() == nil {
				d.log.ErrorContext(ctx, "events for hooks were not looked at", "error", err)
			}
			return
		}
		r := lua.NewReader(reply)
		moved = nil
		for r.Left() > 0 && r.Err() == nil {
			e := event{name: r.Text(), count: r.Int(), since: r.Int(), detail: r.Text()}
			if err := d.tell(ctx, e); err != nil {
				d.log.WarnContext(ctx, "a hook was not told of an event: it will be told later", "event", e.name, "error", err)
				continue
			}
			moved = append(moved, e.name, e.since)
		}
		if len(moved) == 0 {
			return
		}
	}
}

// tell enqueues the jobs of an event, one for each hook that wants to hear of it.
func (d *bucketLoop) tell(ctx context.Context, e event) error {
	kind, path, ofFlow := strings.Cut(e.name, " ")
	var jobs []shaper.Job
	for _, hook := range *d.hooks.Load() {
		if slices.Contains(hook.Events, shaper.Event(kind)) {
			jobs = append(jobs, d.jobOf(hook, e, kind, path, ofFlow))
		}
	}
	if len(jobs) == 0 { // a hook that there is no more
		return nil
	}
	receipts, err := d.enqueue(ctx, jobs...)
	if err != nil {
		return err
	}
	var errs []error
	for _, receipt := range receipts {
		if refusal := receipt.Refusal; refusal != nil && !isThere(refusal.Reason) {
			errs = append(errs, fmt.Errorf("bucket %q: %s", receipt.Bucket, refusal.Detail))
		}
	}
	return errors.Join(errs...)
}

// isThere reports whether a job was refused because an earlier one of the same id is in, or was. Its content may be older, as more
// of the events may have come.
func isThere(reason shaper.Reason) bool {
	return reason == shaper.ReasonIDReused || reason == shaper.ReasonIDEnded
}

// told is the body of a hook's job.
type told struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the first event
	Data      toldData  `json:"data"`
}

type toldData struct {
	Bucket string  `json:"bucket"`
	Group  *string `json:"group,omitempty"`
	Flow   *string `json:"flow,omitempty"` // none of an event of the whole bucket
	Count  int64   `json:"count"`          // events since the timestamp, or since the last time

	// Of the last event.
	Job    string `json:"job,omitempty"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

func (d *bucketLoop) jobOf(hook Hook, e event, kind, path string, ofFlow bool) shaper.Job {
	body := told{Type: kind, Timestamp: time.UnixMicro(e.since).UTC()}
	_ = json.Unmarshal([]byte(e.detail), &body.Data) // what nobody can read is left out
	body.Data.Bucket, body.Data.Count = d.Name, e.count
	if ofFlow && d.HasFlows() {
		flow := path
		if d.Levels() == codec.LevelsGroups {
			group, name, _ := codec.SplitPath(path)
			body.Data.Group, flow = &group, name
		}
		body.Data.Flow = &flow
	}
	payload, _ := json.Marshal(body) // texts, numbers and times always marshal
	sum := sha256.Sum256([]byte(strings.Join([]string{hook.Bucket, hook.URL, d.Keys.Prefix, e.name, strconv.FormatInt(e.since, 10)}, "\n")))
	return shaper.Job{
		Bucket: hook.Bucket, ID: shaper.HookID + hex.EncodeToString(sum[:16]), Flow: hook.Flow, Group: hook.Group, URL: hook.URL, Payload: payload,
		Identity: admission.Identity{Caller: ourCaller},
	}
}
