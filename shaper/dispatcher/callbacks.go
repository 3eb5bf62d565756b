package dispatcher

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/producer"
)

const (
	callbacksAtOnce = 100
	callbackBytes   = 512 << 10 // of one page

	lastCallbacks = time.Second // of a process that stops

	// While the target takes none, or Redis is away.
	minCallbackPause = 500 * time.Millisecond
	maxCallbackPause = 5 * time.Second

	// One that alone is refused is put off by half its age.
	minCallbackDelay = time.Second
	maxCallbackDelay = time.Minute
)

// callbackLine is what settle.lua writes of a job whose end is to be told: "" of one whose end is not.
func (d *bucketLoop) callbackLine(job *leased, state shaper.State) string {
	settings := d.Settings.Load().Callbacks
	if job.callback == "" || settings.Bucket != "" && settings.URLOf(state, job.callbackURL, job.failureURL) == "" {
		return "" // without settings nobody knows, and nothing is lost
	}
	return job.callback
}

// tellCallbacks moves the callbacks of the bucket on until there is none to move now, or ctx ends. Callbacks that this process has written
// move at once. The patrol finds all others within seconds: see someToTell.
func (d *bucketLoop) tellCallbacks(ctx context.Context) {
	for pause := time.Duration(0); ; {
		if pause > 0 && !sleep(ctx, pause) {
			pause = 0
		}
		if pause == 0 && d.ends(&d.tells, func() bool { return len(d.told) == 0 }) {
			return
		}
		select {
		case <-d.told:
		default:
		}
		if pause = 0; d.Settings.Load().Callbacks.Bucket != "" {
			pause = d.moveCallbacks(ctx)
		}
	}
}

// tellLast moves the callbacks on that were written while the loop stopped, for about a second: without it they would wait for
// another dispatcher.
func (d *bucketLoop) tellLast() {
	if len(d.told) == 0 || d.enqueue == nil || d.Settings.Load().Callbacks.Bucket == "" {
		return
	}
	ctx, cancel := context.WithTimeout(d.life, lastCallbacks)
	defer cancel()
	d.moveCallbacks(ctx)
}

// someToTell has the callbacks looked at soon.
func (d *bucketLoop) someToTell() {
	select {
	case d.told <- struct{}{}:
	default:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begin(&d.tells)
}

// waiting is a callback that is to be moved on.
type waiting struct {
	name, text string
	job        shaper.Job
	at         time.Time
}

// moveCallbacks makes jobs of the callbacks of the bucket until none is left, or for as long as the target takes them: then it returns
// how long to leave it alone. A callback stays in Redis until its job is in. When ctx ends, what was handed out is still moved.
func (d *bucketLoop) moveCallbacks(ctx context.Context) (pause time.Duration) {
	var said []any
	for {
		atMost := callbacksAtOnce
		if pause > 0 || ctx.Err() != nil {
			atMost = 0
		}
		page, err := d.takeCallbacks(d.life, atMost, said)
		if err != nil {
			d.noteWaiting(ctx, err.Error())
			return minCallbackPause
		}
		if len(page) == 0 {
			return pause
		}
		said, pause = d.enqueueCallbacks(d.life, page)
	}
}

// takeCallbacks tells Redis what became of callbacks, and takes others: those are handed out again unless it hears of them.
func (d *bucketLoop) takeCallbacks(ctx context.Context, atMost int, said []any) ([]*waiting, error) {
	reply, err := d.store.Run(ctx, lua.MoveCallbacks, d.Keys.Of(lua.MoveCallbacks), slices.Concat([]any{atMost, callbackBytes, d.Levels()}, said)...)
	if err != nil {
		return nil, err
	}
	var page []*waiting
	r := lua.NewReader(reply)
	for r.Left() > 0 && r.Err() == nil {
		page = append(page, &waiting{name: r.Text(), text: r.Text()})
	}
	return page, r.Err()
}

// enqueueCallbacks enqueues the jobs of callbacks, and returns what is to be said of each; of one that nothing is said of, nobody knows
// whether its job is in.
func (d *bucketLoop) enqueueCallbacks(ctx context.Context, page []*waiting) (said []any, pause time.Duration) {
	say := func(w *waiting, word any) { said = append(said, w.name, word) }
	page = slices.DeleteFunc(page, func(w *waiting) bool {
		err := d.fillCallback(w)
		if err != nil {
			d.noteWaiting(ctx, err.Error())
			say(w, maxCallbackDelay.Microseconds())
		}
		return err != nil
	})
	for len(page) > 0 {
		jobs := make([]shaper.Job, len(page))
		for i, w := range page {
			jobs[i] = w.job
		}
		receipts, err := d.enqueue(ctx, jobs...)
		if bad, ok := errors.AsType[*producer.JobError](err); ok && bad.Index < len(page) { // the others are as good as before
			w := page[bad.Index]
			d.noteWaiting(ctx, bad.Err.Error())
			say(w, maxCallbackDelay.Microseconds())
			page = slices.Delete(page, bad.Index, bad.Index+1)
			continue
		}
		if err != nil {
			d.noteWaiting(ctx, err.Error())
			return said, minCallbackPause
		}
		for i, w := range page {
			refusal := receipts[i].Refusal
			switch {
			case refusal == nil || isThere(refusal.Reason):
				say(w, "")
			case slices.Contains(refusesAll, refusal.Reason):
				d.noteWaiting(ctx, refusal.Detail)
				say(w, 0)
				pause = max(pause, min(max(refusal.RetryAfter, minCallbackPause), maxCallbackPause))
			default:
				d.noteWaiting(ctx, refusal.Detail)
				say(w, min(max(d.clock.redis(time.Now()).Sub(w.at)/2, minCallbackDelay), maxCallbackDelay).Microseconds())
			}
		}
		break
	}
	return said, pause
}

// refusesAll are the reasons that hold for all callbacks of a bucket.
var refusesAll = []shaper.Reason{shaper.ReasonBucketFull, shaper.ReasonShed, shaper.ReasonDeadFull}

// noteWaiting logs, about once a minute, why callbacks wait.
func (d *bucketLoop) noteWaiting(ctx context.Context, why string) {
	d.waitingLog.Do(func() {
		d.log.WarnContext(ctx, "callbacks wait: they are tried again, and count against the capacity of the bucket",
			"to", d.Settings.Load().Callbacks.Bucket, "reason", why)
	})
}

// fillCallback makes the job of a callback.
func (d *bucketLoop) fillCallback(w *waiting) error {
	c, err := codec.OpenCallback(d.Name, w.name, w.text)
	if err != nil {
		return err
	}
	settings := d.Settings.Load().Callbacks
	to := settings.URLOf(c.Result.State, c.CallbackURL, c.FailureURL)
	if to == "" { // of the configuration of another process, or not any more
		return fmt.Errorf("the outcome of job %q is to be told, and neither the job nor callbacks of bucket %q has a URL for it", c.Result.ID, d.Name)
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{d.Keys.Prefix, w.name, string(c.Result.State)}, "\n")))
	w.at = c.At
	w.job = shaper.Job{
		Bucket: settings.Bucket, ID: shaper.CallbackID + hex.EncodeToString(sum[:16]), URL: to,
		Flow: cmp.Or(c.Result.Flow, d.Name), Group: cmp.Or(c.Result.Group, d.Name), // where the job names them
		Identity: admission.Identity{Caller: ourCaller},
	}
	w.job.Payload, err = callbackPayload(&c, cmp.Or(settings.MaxPayload, shaper.DefaultBucket().MaxPayload))
	return err
}
