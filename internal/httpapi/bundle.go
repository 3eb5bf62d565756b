package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
)

// BundleName names a bundle.
type BundleName struct {
	BucketName
	Bundle string `json:"bundle" in:"path"`
}

// BundleChange opens a bundle, or changes it.
type BundleChange struct {
	BundleName

	// The number of jobs of the bundle. It has finished when this many of its jobs have ended. Absent: a later request sets it.
	Size int64 `json:"size,omitempty" jsonschema:"minimum=1,maximum=1000000000"`

	// Where the callback goes, as a job of the bucket that `[buckets.callbacks]` names; its origin has to be allowed there. Absent: the url of that
	// table. Without one, no callback is sent.
	CallbackURL string `json:"callback_url,omitempty"`
}

// The operations of bundles.
var (
	OpenBundle = &Operation[BundleChange, *shaper.BundleJSON]{
		ID: "openBundle", Method: "PUT", Path: "/v1/buckets/{bucket}/bundles/{bundle}", Roles: []apikey.Role{apikey.RoleEnqueue}, OptionalBody: true,
		Faults:   []code{codeIDTaken, codeConflict, codeTooManyBundles},
		Answer:   "The bundle.",
		Commands: []string{"bundle open"},
		Summary:  "Open a bundle of jobs, or set its size or callback URL",
		Description: `A bundle sends one callback when all its jobs have ended: done, dead, dropped or cancelled. Open it before its first job, whose ` + "`bundle`" + ` names it, and
set its size now or later. The request is safe to repeat. A bundle belongs to the caller of its key. It is kept for seven days after its last
change, and a bucket has at most 10,000. A single caller has at most half of them; two callers that want all have one third each.`,
	}

	ShowBundle = &Operation[BundleName, *shaper.BundleJSON]{
		ID: "showBundle", Method: "GET", Path: "/v1/buckets/{bucket}/bundles/{bundle}", Roles: []apikey.Role{apikey.RoleEnqueue, apikey.RoleRead},
		Answer:   "The bundle.",
		Commands: []string{"bundle show"},
		Summary:  "Show how many jobs of a bundle have ended",
		Description: `A key with the role enqueue alone sees the bundles of its caller; any other is 404. The counts lag behind the ends of jobs by milliseconds, or by
seconds after a dispatcher has died.`,
	}
)

// bundles serves the routes of bundles. Both servers have them.
type bundles struct {
	open  func(ctx context.Context, bucket string, bundle shaper.Bundle) (shaper.BundleInfo, error)
	info  func(ctx context.Context, bucket, id string) (shaper.BundleInfo, error)
	fault func(r *http.Request, err error) *fault
	check func(bucket string, job *shaper.Job) error // of the callback's URL, as of a job; nil checks nothing
}

func (p *producer) bundles() bundles {
	return bundles{p.jobs.OpenBundle, p.jobs.Bundle, p.fault, p.callbacks}
}

func (o *ops) bundles() bundles {
	return bundles{
		func(ctx context.Context, bucket string, bundle shaper.Bundle) (shaper.BundleInfo, error) {
			return o.buckets.Bucket(bucket).OpenBundle(ctx, bundle)
		},
		func(ctx context.Context, bucket, id string) (shaper.BundleInfo, error) {
			return o.buckets.Bucket(bucket).Bundle(ctx, id)
		},
		o.fault,
		o.callbacks,
	}
}

func (b bundles) routes() []route {
	return []route{bind(b.faultOf, OpenBundle, b.put), bind(b.faultOf, ShowBundle, b.show)}
}

// faultOf returns the fault of an error of an operation on a bundle.
func (b bundles) faultOf(r *http.Request, err error) *fault {
	bundle, bucket := r.PathValue("bundle"), r.PathValue("bucket")
	if _, bad := errors.AsType[*shaper.FieldError](err); bad {
		return invalid(fieldErrors(err))
	}
	switch {
	case errors.Is(err, shaper.ErrUnknownBundle):
		return newFault(codeUnknownBundle, "no such bundle: %q: bucket %q has none of this id, or does not keep it any more", bundle, bucket)
	case errors.Is(err, shaper.ErrBundleTaken):
		return newFault(codeIDTaken, "bundle %q of bucket %q is another caller's: choose another id", bundle, bucket)
	case errors.Is(err, shaper.ErrBundleFinished):
		return newFault(codeConflict, "bundle %q of bucket %q has finished: it cannot be changed any more", bundle, bucket)
	case errors.Is(err, shaper.ErrTooManyBundles):
		return newFault(codeTooManyBundles, "bucket %q has as many bundles as it may, or as many of this caller: each is kept for seven days after its last change: use one again, or wait", bucket)
	}
	return b.fault(r, err)
}

func (b bundles) put(r *http.Request, in *BundleChange) (*shaper.BundleJSON, error) {
	bundle := shaper.Bundle{ID: in.Bundle, Size: in.Size, CallbackURL: in.CallbackURL, Caller: keyOf(r).Owner()}
	if b.check != nil {
		if err := b.check(in.Bucket, &shaper.Job{CallbackURL: in.CallbackURL}); err != nil {
			return nil, err
		}
	}
	var before shaper.BundleInfo
	if isRecorded(r) {
		before, _ = b.info(r.Context(), in.Bucket, in.Bundle) // an error means that there is none
	}
	info, err := b.open(context.WithoutCancel(r.Context()), in.Bucket, bundle)
	if !before.Opened.IsZero() && before.Opened.Equal(info.Opened) && before.Size == info.Size && before.CallbackURL == info.CallbackURL {
		foundNothing(r)
	}
	return info.JSON(), err
}

func (b bundles) show(r *http.Request, in *BundleName) (*shaper.BundleJSON, error) {
	info, err := b.info(r.Context(), in.Bucket, in.Bundle)
	key := keyOf(r)
	if err == nil && key != nil && !key.Has([]apikey.Role{apikey.RoleRead}) && (info.Owner.Mark == "" || !info.Owner.Is(key.Owner())) {
		err = shaper.ErrUnknownBundle
	}
	return info.JSON(), err
}
