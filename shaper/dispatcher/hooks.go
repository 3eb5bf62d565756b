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
	"sync/atomic"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Hook enqueues a job for events of the dispatcher's buckets, in another bucket or the same. Events are aggregated: at most one per minute, type and
// flow, with a count. Each is delivered once, if the bucket of the hook remembers ids long enough.
//
// Jobs of hooks raise no events themselves.
type Hook struct {
	Events []shaper.Event // the types it receives; a bucket records only those in its Events
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

// event is an aggregated event of a flow or bucket: its number since a time.
type event struct {
	name   string // in Redis
	count  int64
	since  int64 // microseconds
	detail string
}

// enqueuer enqueues the jobs of hooks and callbacks: see Config.
type enqueuer func(ctx context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error)

// eventSender passes the events of one bucket to hooks.
type eventSender struct {
	*bucketConn
	shared  *store.Store
	hooks   *atomic.Pointer[[]Hook]
	enqueue enqueuer
}

// isNeeded reports whether there are hooks, and the bucket records events.
func (h *eventSender) isNeeded() bool {
	return len(*h.hooks.Load()) > 0 && len(h.Settings.Load().Events) > 0
}

// move enqueues jobs for the events of the bucket. An event stays in Redis until the jobs of all hooks are enqueued.
func (h *eventSender) move(ctx context.Context) {
	var moved []any
	for began := time.Now(); ; {
		atMost := eventsAtOnce
		if time.Since(began) > eventsTurn {
			atMost = 0
		}
		args := append([]any{atMost}, moved...)
		moved = nil
		err := h.run(ctx, h.shared, lua.MoveEvents, nil, func(r *lua.Reader) {
			for r.Left() > 0 {
				e := event{name: r.Text(), count: r.Int(), since: r.Int(), detail: r.Text()}
				if err := h.enqueueJobs(ctx, e); err != nil {
					h.log.WarnContext(ctx, "a hook was not notified of an event: the dispatcher tries again", "event", e.name, "error", err)
					continue
				}
				moved = append(moved, e.name, e.since)
			}
		}, args...)
		if err != nil && ctx.Err() == nil {
			h.log.ErrorContext(ctx, "events for hooks were not looked at", "error", err)
		}
		if len(moved) == 0 {
			return
		}
	}
}

// enqueueJobs enqueues the jobs of an event, one for each hook that receives its type.
func (h *eventSender) enqueueJobs(ctx context.Context, e event) error {
	kind, path, ofFlow := strings.Cut(e.name, " ")
	var jobs []shaper.Job
	for _, hook := range *h.hooks.Load() {
		if slices.Contains(hook.Events, shaper.Event(kind)) {
			jobs = append(jobs, h.jobOf(hook, e, kind, path, ofFlow))
		}
	}
	if len(jobs) == 0 { // its hook was removed
		return nil
	}
	receipts, err := h.enqueue(ctx, jobs...)
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

// isThere reports whether a job was refused because a job of the same id was enqueued before. The earlier job may have a lower count, as more events
// may have occurred since.
func isThere(reason shaper.Reason) bool {
	return reason == shaper.ReasonIDReused || reason == shaper.ReasonIDEnded
}

// hookPayload is the payload of a hook's job.
type hookPayload struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the first event
	Data      hookData  `json:"data"`
}

type hookData struct {
	Bucket string  `json:"bucket"`
	Group  *string `json:"group,omitempty"`
	Flow   *string `json:"flow,omitempty"` // absent for an event of the whole bucket
	Count  int64   `json:"count"`          // events since the timestamp

	// Of the last event.
	Job    string `json:"job,omitempty"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`

	Window *hookWindow `json:"window,omitempty"` // of window.closed
	Finish *hookFinish `json:"finish,omitempty"` // of finish.late
}

// hookFinish is the forecast for the finish of a drain window: see lua/note_late.lua.
type hookFinish struct {
	At       time.Time `json:"at"`
	Left     int64     `json:"left"`
	Why      []string  `json:"why"`      // codes of what holds jobs back, the one with most jobs first
	Sentence string    `json:"sentence"` // the verdict for people
}

// readFinish parses the detail of finish.late, and returns nil if it has none. Its numbers are texts, as Lua's JSON rounds large ones.
func readFinish(detail string) *hookFinish {
	var texts struct {
		At       int64  `json:"at,string"`
		Left     int64  `json:"left,string"`
		Why      string `json:"why"`
		Sentence string `json:"sentence"`
	}
	if json.Unmarshal([]byte(detail), &texts) != nil || texts.At == 0 {
		return nil
	}
	return &hookFinish{time.UnixMicro(texts.At).UTC(), texts.Left, strings.Fields(texts.Why), texts.Sentence}
}

// hookWindow is the result of a drain window: see lua/close_window.lua.
type hookWindow struct {
	Opened  time.Time `json:"opened"`
	Closed  time.Time `json:"closed"`
	Sent    int64     `json:"sent"`
	Dead    int64     `json:"dead"`
	Dropped int64     `json:"dropped"`
	Left    int64     `json:"left"`
	Delayed int64     `json:"delayed"`
	Why     []string  `json:"why"` // codes of why jobs are left
}

// readWindow parses the detail of window.closed. Its numbers are texts, as Lua's JSON rounds large ones.
func readWindow(detail string) *hookWindow {
	var texts struct {
		Opened  int64  `json:"opened,string"`
		Closed  int64  `json:"closed,string"`
		Sent    int64  `json:"sent,string"`
		Dead    int64  `json:"dead,string"`
		Dropped int64  `json:"dropped,string"`
		Left    int64  `json:"left,string"`
		Delayed int64  `json:"delayed,string"`
		Why     string `json:"why"`
	}
	if json.Unmarshal([]byte(detail), &texts) != nil {
		return nil
	}
	return &hookWindow{
		Opened: time.UnixMicro(texts.Opened).UTC(), Closed: time.UnixMicro(texts.Closed).UTC(), Sent: texts.Sent, Dead: texts.Dead, Dropped: texts.Dropped,
		Left: texts.Left, Delayed: texts.Delayed, Why: strings.Fields(texts.Why),
	}
}

func (h *eventSender) jobOf(hook Hook, e event, kind, path string, ofFlow bool) shaper.Job {
	body := hookPayload{Type: kind, Timestamp: time.UnixMicro(e.since).UTC()}
	_ = json.Unmarshal([]byte(e.detail), &body.Data) // a detail that cannot be parsed is omitted
	body.Data.Bucket, body.Data.Count = h.Name, e.count
	if kind == string(shaper.EventFinishLate) {
		body.Data.Finish = readFinish(e.detail)
	}
	if kind == string(shaper.EventWindowClosed) { // its name includes its opening, so that windows are not aggregated
		body.Data.Window, ofFlow = readWindow(e.detail), false
	}
	if ofFlow && h.HasFlows() {
		flow := path
		if h.Levels() == codec.LevelsGroups {
			group, name, _ := codec.SplitPath(path)
			body.Data.Group, flow = &group, name
		}
		body.Data.Flow = &flow
	}
	payload, _ := json.Marshal(body) // texts, numbers and times always marshal
	sum := sha256.Sum256([]byte(strings.Join([]string{hook.Bucket, hook.URL, h.Keys.Prefix, e.name, strconv.FormatInt(e.since, 10)}, "\n")))
	return shaper.Job{
		Bucket: hook.Bucket, ID: shaper.HookID + hex.EncodeToString(sum[:16]), Flow: hook.Flow, Group: hook.Group, URL: hook.URL, Payload: payload,
		Identity: admission.Identity{Caller: ourCaller},
	}
}
