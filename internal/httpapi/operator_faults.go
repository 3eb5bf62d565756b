package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// fault returns the fault of an error of an operation.
func (o *ops) fault(r *http.Request, err error) *fault {
	if bad, ok := errors.AsType[*operator.InvalidChangeError](err); ok {
		return invalid(patchFaults(bad.Err))
	}
	if conflict, ok := errors.AsType[*operator.ScheduleConflictError](err); ok {
		return conflictFault(r, conflict)
	}
	bucket, pool, schedule := r.PathValue("bucket"), r.PathValue("pool"), r.PathValue("schedule")
	switch {
	case errors.Is(err, shaper.ErrUnknownBucket):
		return o.unknownBucket(r, bucket)
	case errors.Is(err, operator.ErrUnknownPool):
		return o.unknownPool(pool)
	case errors.Is(err, operator.ErrNoSchedule):
		return newFault(codeUnknownSchedule, "unknown schedule %q: GET /v1/schedules lists them", schedule)
	case errors.Is(err, operator.ErrNoFlows):
		return newFault(codeNoFlows, "bucket %q: the bucket has no flows: it is configured without [buckets.flow]. For flows that jobs name, configure it with [buckets.flow] and key = \"job\"", bucket)
	case errors.Is(err, operator.ErrNoGroups):
		return newFault(codeNoGroups, "bucket %q: the bucket has no groups: it is configured without [buckets.group]. For groups that jobs name, configure it with [buckets.group] and key = \"job\"", bucket)
	case errors.Is(err, operator.ErrGroupNeeded):
		return invalid([]*shaper.FieldError{{Field: "group", Reason: "is missing: flows of this bucket are in groups, so name the flow's as &group="}})
	}
	f := o.store.faultOf(r, err)
	if mayHaveRun(err) && r.Method != http.MethodGet {
		what := fmt.Sprintf("bucket %q", bucket)
		switch {
		case pool != "":
			what = fmt.Sprintf("pool %q", pool)
		case schedule != "":
			what = fmt.Sprintf("schedule %q", schedule)
		}
		f.Detail = fmt.Sprintf("Redis is not reachable or too slow: %s may be changed; send the same request again, which is safe", what)
	}
	return f
}

// unknownBucket returns a fault that lists the existing buckets of the caller's key.
func (o *ops) unknownBucket(r *http.Request, name string) *fault {
	names := slices.Clone(o.buckets.Buckets())
	if key := keyOf(r); key != nil {
		names = slices.DeleteFunc(names, func(name string) bool { return !key.MayUse(name) })
	}
	if len(names) == 0 {
		return newFault(codeUnknownBucket, "unknown bucket %q: there is none of this name yet: the program or the configuration that has it makes it at its start", name)
	}
	return newFault(codeUnknownBucket, "unknown bucket %q: the configuration has %s", name, strings.Join(names, ", "))
}

func (o *ops) unknownPool(name string) *fault {
	return newFault(codeUnknownPool, "unknown pool %q: the buckets of the configuration are in %s", name, cmp.Or(strings.Join(o.buckets.Pools(), ", "), "none"))
}

// conflictFault returns a fault that names a conflicting schedule. It names the schedule's bucket only if it is one of the key's.
func conflictFault(r *http.Request, conflict *operator.ScheduleConflictError) *fault {
	if slices.ContainsFunc(conflict.Buckets, func(bucket string) bool { return isForeign(r, bucket) }) {
		return newFault(codeScheduleConflict, "schedule %q: the name is taken in a bucket that the key is not for: choose another name", r.PathValue("schedule"))
	}
	return newFault(codeScheduleConflict, "%s", conflict)
}

// isForeign reports whether the caller's key has no access to a bucket.
func isForeign(r *http.Request, bucket string) bool {
	key := keyOf(r)
	return key != nil && !key.MayUse(bucket)
}
