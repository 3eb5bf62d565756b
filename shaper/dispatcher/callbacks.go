package dispatcher

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	sometimes "golang.org/x/time/rate"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

const (
	callbacksAtOnce = 100
	callbackBytes   = 512 << 10 // of one page

	lastCallbacks = time.Second // when a bucket loop stops

	// How long to wait while the target accepts no job, or Redis is down.
	minCallbackPause = 500 * time.Millisecond
	maxCallbackPause = 5 * time.Second

	// A callback that is refused individually is retried after half its age.
	minCallbackDelay = time.Second
	maxCallbackDelay = time.Minute
)

// callbackMover turns the callbacks of one bucket into jobs. It moves callbacks that this process has written at once; the patrol finds all others
// within seconds.
type callbackMover struct {
	*bucketConn
	enqueue    enqueuer
	written    token // callbacks were written
	moves      helper
	waitingLog sometimes.Sometimes // for waiting callbacks
}

// newCallbackMover returns a mover. With a nil enqueue it only counts jobs of bundles.
func newCallbackMover(c *bucketConn, enqueue enqueuer) *callbackMover {
	m := &callbackMover{bucketConn: c, enqueue: enqueue, written: newToken(), waitingLog: sometimes.Sometimes{First: 1, Interval: time.Minute}}
	m.moves.do = m.move
	return m
}

// wake starts moving callbacks soon. It does nothing for nil: such a process leaves them to others.
func (m *callbackMover) wake() {
	if m != nil {
		m.written.put()
		m.moves.begin()
	}
}

// isNeeded reports whether the bucket has callbacks. Any bucket may have bundles, see [bucketPatrol.queueCheck].
func (m *callbackMover) isNeeded() bool { return m.Settings.Load().Callbacks.Bucket != "" }

// move moves callbacks until none is left to move now, or ctx ends.
func (m *callbackMover) move(ctx context.Context) {
	for pause := time.Duration(0); ; {
		if pause > 0 && !sleep(ctx, pause) {
			pause = 0
		}
		if pause == 0 && m.moves.ends(func() bool { return len(m.written) == 0 }) {
			return
		}
		select {
		case <-m.written:
		default:
		}
		pause = m.moveAll(ctx)
	}
}

// moveLast moves the callbacks that were written while the bucket's loop stopped, for about a second. Otherwise they would wait for another
// dispatcher.
func (m *callbackMover) moveLast() {
	if len(m.written) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(m.life, lastCallbacks)
	defer cancel()
	m.moveAll(ctx)
}

// waiting is a callback to be moved.
type waiting struct {
	name, text string
	job        shaper.Job // with bucket "" there is no job to enqueue: the job of a bundle is only counted
	at         time.Time
	counted    string // how to count it, if the job is in a bundle: see lua/move_callbacks.lua
}

// moveAll enqueues the jobs of the bucket's callbacks until none is left or the target accepts no more. Then it returns how long to pause. A callback
// stays in Redis until its job is enqueued. After ctx ends, it still finishes the page that it has taken.
func (m *callbackMover) moveAll(ctx context.Context) (pause time.Duration) {
	var said []any
	for {
		atMost := callbacksAtOnce
		if pause > 0 || ctx.Err() != nil {
			atMost = 0
		}
		page, err := m.take(m.life, atMost, said)
		if err != nil {
			m.noteWaiting(ctx, err.Error())
			return minCallbackPause
		}
		if len(page) == 0 {
			return pause
		}
		said, pause = m.enqueueJobs(m.life, page)
	}
}

// take reports the results of callbacks to Redis (said), and returns the next page. Redis returns a callback again until it gets its result.
func (m *callbackMover) take(ctx context.Context, atMost int, said []any) ([]*waiting, error) {
	var page []*waiting
	err := m.run(ctx, m.store, lua.MoveCallbacks, nil, func(r *lua.Reader) {
		for r.Left() > 0 {
			page = append(page, &waiting{name: r.Text(), text: r.Text()})
		}
	}, slices.Concat([]any{atMost, callbackBytes, m.Levels(), store.NotifiedBundles(&m.Settings.Load().Callbacks)}, said)...)
	return page, err
}

// enqueueJobs enqueues the jobs of callbacks, and returns the results to report to Redis. A callback without a result may or may not have been
// enqueued.
func (m *callbackMover) enqueueJobs(ctx context.Context, page []*waiting) (said []any, pause time.Duration) {
	say := func(w *waiting, word any) { said = append(said, w.name, word, w.counted) }
	page = slices.DeleteFunc(page, func(w *waiting) bool {
		err := m.fill(w)
		switch {
		case errors.Is(err, errNoCallbacks): // another process may move it soon, and later callbacks are processed
			say(w, maxCallbackPause.Microseconds())
		case err != nil:
			m.noteWaiting(ctx, err.Error())
			say(w, maxCallbackDelay.Microseconds())
		case w.job.Bucket == "":
			say(w, "")
		}
		return err != nil || w.job.Bucket == ""
	})
	for len(page) > 0 {
		jobs := make([]shaper.Job, len(page))
		for i, w := range page {
			jobs[i] = w.job
		}
		receipts, err := m.enqueue(ctx, jobs...)
		if bad, ok := errors.AsType[*producer.JobError](err); ok && bad.Index < len(page) { // the others are still valid
			w := page[bad.Index]
			m.noteWaiting(ctx, bad.Err.Error())
			say(w, maxCallbackDelay.Microseconds())
			page = slices.Delete(page, bad.Index, bad.Index+1)
			continue
		}
		if err != nil {
			m.noteWaiting(ctx, err.Error())
			return said, minCallbackPause
		}
		for i, w := range page {
			refusal := receipts[i].Refusal
			switch {
			case refusal == nil || isThere(refusal.Reason):
				say(w, "")
			case slices.Contains(refusesAll, refusal.Reason):
				m.noteWaiting(ctx, refusal.Detail)
				say(w, 0)
				pause = max(pause, min(max(refusal.RetryAfter, minCallbackPause), maxCallbackPause))
			default:
				m.noteWaiting(ctx, refusal.Detail)
				say(w, min(max(m.clock.redis(time.Now()).Sub(w.at)/2, minCallbackDelay), maxCallbackDelay).Microseconds())
			}
		}
		break
	}
	return said, pause
}

// refusesAll lists the refusals that apply to all callbacks of a bucket.
var refusesAll = []shaper.Reason{shaper.ReasonBucketFull, shaper.ReasonShed, shaper.ReasonDeadFull}

// noteWaiting logs, about once a minute, why callbacks wait.
func (m *callbackMover) noteWaiting(ctx context.Context, why string) {
	m.waitingLog.Do(func() {
		m.log.WarnContext(ctx, "callbacks wait: they are tried again, and count against the capacity of the bucket",
			"to", m.Settings.Load().Callbacks.Bucket, "reason", why)
	})
}

// fill sets the job of a callback.
func (m *callbackMover) fill(w *waiting) error {
	settings := m.Settings.Load().Callbacks
	if b, at, ok, err := codec.OpenFinished(m.Name, w.name, w.text); ok {
		if err == nil {
			err = m.fillFinished(w, &b, at)
		}
		return err
	}
	c, err := codec.OpenCallback(m.Name, w.name, w.text)
	if err != nil {
		return err
	}
	to := settings.URLOf(c.Result.State, c.CallbackURL, c.FailureURL)
	if c.Bundle != "" {
		w.counted = fmt.Sprintf("%s %d %s", codec.CodeOf(c.Result.State), store.BoolArg(c.WasDead), c.Bundle)
		if c.OnlyCounted || settings.Bucket != "" && to == "" {
			return nil
		}
	}
	if err := m.mayEnqueue(&settings); err != nil {
		return err
	}
	if to == "" { // configured by another process, or removed meanwhile
		return fmt.Errorf("the outcome of job %q has no callback URL: neither the job nor callbacks of bucket %q has one", c.Result.ID, m.Name)
	}
	m.address(w, c.At, string(c.Result.State), to)
	w.job.Flow, w.job.Group = cmp.Or(c.Result.Flow, m.Name), cmp.Or(c.Result.Group, m.Name) // where the jobs name their flow and group
	w.job.Payload, err = callbackPayload(&c, cmp.Or(settings.MaxPayload, shaper.DefaultBucket().MaxPayload))
	return err
}

// fillFinished sets the job of the callback of a finished bundle.
func (m *callbackMover) fillFinished(w *waiting, b *shaper.BundleInfo, at time.Time) error {
	settings := m.Settings.Load().Callbacks
	to := cmp.Or(b.CallbackURL, settings.URL)
	if err := m.mayEnqueue(&settings); err != nil {
		return err
	}
	if to == "" {
		return fmt.Errorf("the end of bundle %q has no callback URL: neither the bundle nor callbacks of bucket %q has one", b.ID, m.Name)
	}
	m.address(w, at, "bundle", to)
	w.job.Flow, w.job.Group = m.Name, m.Name
	var err error
	w.job.Payload, err = encode(&bundlePayload{Type: "bundle.finished", Timestamp: at.UTC(), Data: b.JSON()})
	return err
}

// errNoCallbacks means that a callback is left to processes whose configuration has callbacks for the bucket.
var errNoCallbacks = errors.New("dispatcher: this process makes no callbacks for the bucket")

func (m *callbackMover) mayEnqueue(settings *shaper.Callbacks) error {
	if m.enqueue == nil || settings.Bucket == "" {
		return errNoCallbacks
	}
	return nil
}

// address sets the job of a callback except its flow and payload. The same callback always has the same job id.
func (m *callbackMover) address(w *waiting, at time.Time, of, to string) {
	sum := sha256.Sum256([]byte(strings.Join([]string{m.Keys.Prefix, w.name, of}, "\n")))
	w.at = at
	w.job = shaper.Job{
		Bucket: m.Settings.Load().Callbacks.Bucket, ID: shaper.CallbackID + hex.EncodeToString(sum[:16]), URL: to,
		Identity: admission.Identity{Caller: ourCaller},
	}
}

// outcomePayload is the payload of a callback, in the form of a hook's payload with the result as its data.
type outcomePayload struct {
	Type      string             `json:"type"` // job.done, job.dead or job.dropped
	Timestamp time.Time          `json:"timestamp"`
	Data      *shaper.ResultJSON `json:"data"`
}

// bundlePayload is the payload of the callback of a bundle.
type bundlePayload struct {
	Type      string             `json:"type"`
	Timestamp time.Time          `json:"timestamp"`
	Data      *shaper.BundleJSON `json:"data"`
}

// callbackPayload returns the payload of a callback in at most atMost bytes. A longer one loses part of the response body, and then the headers. The
// same callback always has the same payload.
func callbackPayload(c *codec.Callback, atMost int64) ([]byte, error) {
	payload := outcomePayload{Type: "job." + string(c.Result.State), Timestamp: c.At.UTC(), Data: c.Result.JSON()}
	whole, err := encode(&payload)
	if err != nil || int64(len(whole)) <= atMost {
		return whole, err
	}
	if c.Result.Answer != nil {
		less, answer := c.Result, *c.Result.Answer
		less.Answer, answer.Cut = &answer, true
		body := answer.Body
		isText := utf8.Valid(body)
		fits := func(n int) []byte {
			for isText && n > 0 && n < len(body) && !utf8.RuneStart(body[n]) {
				n--
			}
			answer.Body = body[:n]
			payload.Data = less.JSON()
			if text, err := encode(&payload); err == nil && int64(len(text)) <= atMost {
				return text
			}
			return nil
		}
		if fits(0) == nil {
			answer.Headers = nil
		}
		// n is the first length that is too long
		if n := sort.Search(len(body)+1, func(n int) bool { return fits(n) == nil }); n > 0 {
			return fits(n - 1), nil
		}
	}
	return nil, fmt.Errorf("the outcome of job %q of bucket %q does not fit into %d bytes: raise max_payload of the bucket that delivers callbacks",
		c.Result.ID, c.Result.Bucket, atMost)
}

func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("write a callback as JSON: %w", err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}
