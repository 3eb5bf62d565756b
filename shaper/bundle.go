package shaper

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Bundle is a number of jobs of a bucket whose end is told once: when all of them have ended, done, dead, dropped or cancelled. It is
// opened before the first of its jobs is enqueued; each job names it ([Job.Bundle]). It has finished when as many of its jobs as its Size have
// ended. A dead letter has ended; when it is redriven, its next end takes the place of that in the counts, and nothing is told again.
//
// A bucket keeps a bundle for seven days after its last change, and 10,000 of them at most. One caller alone has half of them, and two
// that want all have a third each.
type Bundle struct {
	// ID names the bundle within its bucket, as that of a job names a job.
	ID string

	// Size is how many jobs the bundle has, if that is known; else 0, and another call says it later. Jobs that are refused or are there
	// already are no further ones.
	Size int64

	// CallbackURL is where the end is told, if the bucket has [Callbacks]; empty means the URL of these, and without any the bundle is
	// only there to look at.
	CallbackURL string

	// Caller is whose bundle it is: jobs of other callers cannot be in it. "" is no caller.
	Caller string
}

// MaxBundleSize bounds [Bundle.Size].
const MaxBundleSize = 1_000_000_000

// Errors of bundles.
var (
	ErrUnknownBundle  = errors.New("shaper: no such bundle")
	ErrBundleTaken    = errors.New("shaper: the id is that of another caller's bundle")
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

// BundleInfo is what is known of a [Bundle].
type BundleInfo struct {
	ID     string
	Bucket string
	Owner  Owner // its caller
	Size   int64 // 0: not known yet

	Done, Dead, Dropped, Cancelled int64 // jobs of it that ended so

	CallbackURL string

	// By the clock of Redis. Finished is zero as long as the bundle has not.
	Opened, Changed, Finished time.Time
}

// Ended is how many jobs of the bundle have ended.
func (b *BundleInfo) Ended() int64 { return b.Done + b.Dead + b.Dropped + b.Cancelled }

// BundleJSON is a [BundleInfo] in JSON, as the HTTP API answers it and as callbacks tell it.
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

// JSON is the bundle as JSON has it.
func (b *BundleInfo) JSON() *BundleJSON {
	return &BundleJSON{
		ID: b.ID, Bucket: b.Bucket, Size: b.Size, Ended: b.Ended(), Done: b.Done, Dead: b.Dead, Dropped: b.Dropped, Cancelled: b.Cancelled,
		OpenedAt: micros(b.Opened), FinishedAt: micros(b.Finished),
	}
}
