package shaper

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Bundle is a set of jobs of a bucket with one callback, sent when all of them have finished: done, dead, dropped or cancelled. It is opened before
// the first of its jobs is enqueued; each job names it ([Job.Bundle]). It has finished when as many jobs as its Size have ended. A dead letter has
// ended. When it is redriven, its next end replaces the previous one in the counts, and no second callback is sent.
//
// A bucket keeps a bundle for seven days after its last change, and at most 10,000 bundles. A single caller may have half of them; two callers that
// fill their shares have one third each.
type Bundle struct {
	// ID names the bundle within its bucket.
	ID string

	// Size is how many jobs the bundle has; 0 if a later call sets it. Refused jobs and duplicates don't count as further jobs.
	Size int64

	// CallbackURL receives the callback, if the bucket has [Callbacks]. Empty means the URL of these. Without any URL, the bundle can only be
	// inspected.
	CallbackURL string

	// Caller is the owner of the bundle: jobs of other callers cannot be in it. "" is no caller.
	Caller string
}

// MaxBundleSize bounds [Bundle.Size].
const MaxBundleSize = 1_000_000_000

// Errors of bundles.
var (
	ErrUnknownBundle  = errors.New("shaper: no such bundle")
	ErrBundleTaken    = errors.New("shaper: the id belongs to another caller's bundle")
	ErrBundleFinished = errors.New("shaper: the bundle has finished")
	ErrTooManyBundles = errors.New("shaper: the bucket has too many bundles, or the caller as many as it may")
)

// CheckBundle reports every fault of a bundle of this bucket: joined errors, each a [*FieldError]; or nil.
func (b *Bucket) CheckBundle(bundle *Bundle) error {
	var errs []error
	if !ValidBundleID(bundle.ID) {
		errs = append(errs, &FieldError{"bundle", "want 1 to 128 letters, digits, - and _"})
	}
	if bundle.Size < 0 || bundle.Size > MaxBundleSize {
		errs = append(errs, &FieldError{"size", fmt.Sprintf("%d: want 1 to %d", bundle.Size, MaxBundleSize)})
	}
	if !utf8.ValidString(bundle.CallbackURL) {
		errs = append(errs, &FieldError{"callback_url", "is not UTF-8"})
	}
	return errors.Join(append(errs, b.Callbacks.Check(b.Name, &Job{CallbackURL: bundle.CallbackURL}))...)
}

// BundleInfo is a [Bundle] with its state.
type BundleInfo struct {
	ID     string
	Bucket string
	Owner  Owner // its caller
	Size   int64 // 0: not known yet

	Done, Dead, Dropped, Cancelled int64 // its jobs that ended this way

	CallbackURL string

	// By the clock of Redis. Finished is zero until the bundle has finished.
	Opened, Changed, Finished time.Time
}

// Ended returns how many jobs of the bundle have ended.
func (b *BundleInfo) Ended() int64 { return b.Done + b.Dead + b.Dropped + b.Cancelled }

// BundleJSON is the JSON form of a [BundleInfo], in the HTTP API and in callbacks.
type BundleJSON struct {
	ID     string `json:"id"`
	Bucket string `json:"bucket"`

	// How many jobs it has. Absent as long as that is not known.
	Size int64 `json:"size,omitempty"`

	// How many have ended, in one of the four ways that follow.
	Ended     int64 `json:"ended"`
	Done      int64 `json:"done"`
	Dead      int64 `json:"dead"`
	Dropped   int64 `json:"dropped"`
	Cancelled int64 `json:"cancelled"`

	// The times are by the clock of Redis.
	OpenedAt *time.Time `json:"opened_at"`

	// When all had ended. Absent before.
	FinishedAt *time.Time `json:"finished_at,omitempty"`
}

// JSON returns the bundle in its JSON form.
func (b *BundleInfo) JSON() *BundleJSON {
	return &BundleJSON{
		ID: b.ID, Bucket: b.Bucket, Size: b.Size, Ended: b.Ended(), Done: b.Done, Dead: b.Dead, Dropped: b.Dropped, Cancelled: b.Cancelled,
		OpenedAt: micros(b.Opened), FinishedAt: micros(b.Finished),
	}
}
