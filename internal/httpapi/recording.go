package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
)

// recorder writes the records of operations that change something.
type recorder struct {
	records *audit.Log
	author  string // of changes that show no key
	address func(r *http.Request) string
	log     *slog.Logger

	// notify notifies hooks that an operation has changed something of a bucket.
	notify func(r *http.Request, bucket, operation string) error

	// knows returns an error for a bucket that does not exist, which has no list of records.
	knows func(ctx context.Context, bucket string) error
}

// HeaderPart holds a token of an operation that a client makes in several requests. A response has the token, and the next request repeats it to join
// the record of the first one.
const HeaderPart = "Tundish-Audit-Part"

// newRecorder returns a recorder, or nil if nothing is to be recorded.
func newRecorder(o *ops, records *audit.Log, author string, address func(r *http.Request) string, log *slog.Logger) *recorder {
	if records == nil {
		return nil
	}
	rec := &recorder{records: records, author: author, address: address, log: log, notify: func(*http.Request, string, string) error { return nil }}
	rec.knows = func(context.Context, string) error { return shaper.ErrUnknownBucket }
	if o != nil {
		rec.knows = func(ctx context.Context, bucket string) error {
			if slices.Contains(o.buckets.Buckets(), bucket) { // without a round trip
				return nil
			}
			return o.knows(ctx, bucket)
		}
		rec.notify = func(r *http.Request, bucket, operation string) error {
			if bucket == "" {
				return nil
			}
			return o.as(r).Bucket(bucket).NotifyChanged(context.WithoutCancel(r.Context()), operation)
		}
	}
	return rec
}

type recorderKey struct{}

// routes makes routes record changes: operators' routes, and with all also clients' routes.
func (rec *recorder) routes(routes []route, all bool) []route {
	if rec == nil {
		return routes
	}
	routes = slices.Clone(routes)
	for i := range routes {
		r := &routes[i]
		if r.op == nil || r.op.Method == http.MethodGet || !all && slices.Contains(r.op.Roles, apikey.RoleEnqueue) {
			continue
		}
		serve := r.serve
		r.serve = func(w http.ResponseWriter, r *http.Request) {
			serve(w, r.WithContext(context.WithValue(r.Context(), recorderKey{}, rec)))
		}
	}
	return routes
}

type recordKey struct{}

// changedFrom records the changed settings, each with its old and new value. Both are as any reader sees them.
func changedFrom(r *http.Request, before, after any) {
	record, _ := r.Context().Value(recordKey{}).(*audit.Record)
	if record == nil {
		return
	}
	was, is := membersOf(before), membersOf(after)
	both := map[string]json.RawMessage{}
	maps.Copy(both, was)
	maps.Copy(both, is)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if string(was[name]) != string(is[name]) {
			record.Changes = append(record.Changes, shaper.Change{Setting: shaper.Setting(name), Before: plain(was[name]), After: plain(is[name])})
		}
	}
}

// membersOf returns the members of a value that is an object in JSON; none for any other value.
func membersOf(view any) (members map[string]json.RawMessage) {
	text, err := json.Marshal(view)
	if err == nil {
		_ = json.Unmarshal(text, &members) // an error means that there are none
	}
	return members
}

// plain is a value without the quotation marks of a text.
func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// isRecorded reports whether a request's changes are recorded.
func isRecorded(r *http.Request) bool { return r.Context().Value(recordKey{}) != nil }

// foundNothing notes that an operation has found nothing to change, where its response does not say so.
func foundNothing(r *http.Request) {
	if record, _ := r.Context().Value(recordKey{}).(*audit.Record); record != nil {
		record.Outcome = audit.Nothing
	}
}

// recorded carries out an operation, and records it if it changes something. Without a record, which Redis has to take, nothing is changed.
func recorded[In, Out any](of func(r *http.Request, err error) *fault, d *Described, w http.ResponseWriter, r *http.Request, in *In, do func(r *http.Request, in *In) (Out, error)) (out Out, err error) {
	rec, _ := r.Context().Value(recorderKey{}).(*recorder)
	if rec == nil {
		return do(r, in)
	}
	record := rec.recordOf(r, d, in)
	if record == nil {
		return do(r, in)
	}
	if err = rec.records.Begin(r.Context(), record); err != nil {
		return out, err
	}
	if token := record.Token(); token != "" {
		w.Header().Set(HeaderPart, token)
	}
	out, err = do(r.WithContext(context.WithValue(r.Context(), recordKey{}, record)), in)
	if err != nil {
		err = asFault(r, err, of)
		recordRefusal(record, err)
	} else {
		recordOutcome(record, out)
	}
	if failed := rec.records.End(r.Context(), record); failed != nil {
		rec.log.WarnContext(r.Context(), "an operation has ended, and its record says only that it has begun", "operation", record.Operation, "record", record.ID, "error", failed)
	}
	if record.Outcome == audit.Done {
		if failed := rec.notify(r, record.Object["bucket"], record.Operation); failed != nil {
			rec.log.WarnContext(r.Context(), "hooks were not notified of an operation", "operation", record.Operation, "record", record.ID, "error", failed)
		}
	}
	return out, err
}

// asFault converts an error for [writeFault]. It calls of once: of may log.
func asFault(r *http.Request, err error, of func(r *http.Request, err error) *fault) error {
	switch err.(type) { //nolint:errorlint // both are made here, and never wrapped
	case *fault, *problem:
		return err
	}
	return of(r, err)
}

// recordRefusal records why an operation was not carried out.
func recordRefusal(record *audit.Record, err error) {
	status := http.StatusInternalServerError
	switch err := err.(type) { //nolint:errorlint // see asFault
	case *fault:
		status, record.Detail = kinds[err.Code].status, string(err.Code)+": "+err.Detail
	case *problem:
		status, record.Detail = err.Status, string(err.Code)+": "+err.Detail
		record.Count = int64(err.Moved) + int64(err.Dropped) + err.Purged
	}
	record.Outcome = audit.Refused
	if status >= http.StatusInternalServerError {
		record.Outcome = audit.Failed
	}
}

// recordOutcome records the result of an operation.
func recordOutcome(record *audit.Record, out any) {
	if record.Outcome != audit.Nothing { // see foundNothing
		record.Outcome = audit.Done
	}
	nothing := func(changed *bool) {
		if changed != nil && !*changed && record.Count == 0 {
			record.Outcome = audit.Nothing
		}
	}
	count := func(n int64) {
		if record.Count = n; n == 0 {
			record.Outcome = audit.Nothing
		}
	}
	switch out := out.(type) {
	case *opsview.Bucket:
		if out.FlowsReleased != nil {
			record.Count = *out.FlowsReleased
		}
		record.Changes = out.Changes
		nothing(out.Changed)
	case *opsview.PoolView:
		record.Changes = out.Changes
		nothing(out.Changed)
	case *opsview.RemovedFlow:
		if n := out.Waiting + int64(out.Dead) + int64(out.Results); n > 0 || len(out.Own) == 0 {
			count(n)
		}
	case *opsview.EnabledFlow:
		if out.Redriven != nil {
			record.Count = int64(out.Redriven.Moved)
		}
		nothing(out.Changed)
	case opsview.View:
		nothing(out.Alike().Changed)
	case *opsview.Schedule:
		nothing(out.Changed)
	case *SessionEnd:
		nothing(&out.Changed)
	case *opsview.Purge:
		count(out.Purged + out.Left)
	case *opsview.DeadChange:
		n := 0
		for _, some := range []*int{out.Moved, out.Dropped} {
			if some != nil {
				n += *some
			}
		}
		count(int64(n))
	case *opsview.Retried:
		count(out.Jobs)
	case *FlowsPut:
		count(int64(out.Flows))
	}
}

// objects are the parameters that name the object of a change.
var objects = []string{"bucket", "flow", "group", "pool", "schedule", "limit", "id", "bundle"}

// recordOf is the record of an operation before it begins, or nil if it is only tried.
func (rec *recorder) recordOf(r *http.Request, d *Described, in any) *audit.Record {
	record := &audit.Record{
		Author: authorOf(r, rec.author), Share: shareOf(r, rec.author), Address: rec.address(r), Process: redisconn.ProcessName(), Request: requestID(r), Operation: d.ID,
		Object: map[string]string{}, Asked: map[string]any{},
	}
	if at := visitor(r).Address; at != "" {
		record.Address = at
	}
	of := reflect.ValueOf(in).Elem()
	if !ask(record, "", inputOf(of.Type()), of) {
		return nil
	}
	if d.InParts {
		record.InParts(r.Header.Get(HeaderPart))
	}
	if bucket := record.Object["bucket"]; bucket != "" {
		record.NoBucket = rec.knows(r.Context(), bucket) != nil
	}
	return record
}

// ask records the input, and reports whether the request changes anything: a dry run does not.
func ask(record *audit.Record, before string, fields []field, in reflect.Value) bool {
	for i := range fields {
		f := &fields[i]
		v := in.FieldByIndex(f.index)
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.IsZero() {
			continue
		}
		switch value := v.Interface().(type) {
		case json.RawMessage:
			members := membersOf(value)
			if string(members["dry_run"]) == "true" {
				return false
			}
			record.Asked["settings"] = slices.Sorted(maps.Keys(members))
		case []byte: // lines
		case []string:
			record.Asked[before+f.name] = value
		case bool:
			if f.name == "dry_run" {
				return false
			}
			record.Asked[before+f.name] = value
		case string:
			switch {
			case f.name == "reason" && before == "" && f.in == "":
				record.Reason = value
			case f.name == "confirm" || f.name == "cursor":
			case strings.HasSuffix(f.name, "url"): // it may hold a secret
				record.Asked["settings"] = []string{before + f.name}
			case before == "" && f.in != "" && slices.Contains(objects, f.name):
				record.Object[f.name] = value
			default:
				record.Asked[before+f.name] = value
			}
		default:
			if f.fields != nil {
				if !ask(record, before+f.name+".", f.fields, v) {
					return false
				}
				continue
			}
			record.Asked[before+f.name] = fmt.Sprint(value)
		}
	}
	return true
}
