package httpapi

import (
	"bytes"
	"cmp"
	"net/http"
	"reflect"
	"slices"

	"github.com/tundish-io/tundish/internal/apikey"
)

// Operation is an operation of the operator's API, described once. It is the source of its route, its part of openapi.yaml (scripts/operations), its row
// in docs/http-reference.md, and the request by which a program calls it.
//
// The fields of In are the input: each a member of the body, or with the tag in:"path" or in:"query" a parameter. See field. Out is the response; its
// method Status, if it has one, returns the status, which is 200 otherwise. The comments of both types are their descriptions.
type Operation[In, Out any] struct {
	ID           string // in openapi.yaml
	Method, Path string // in the grammar of http.ServeMux

	Summary     string
	Description string
	Answer      string // description of the response, if Summary does not have it

	Commands []string // of the command line that call it

	Roles      []apikey.Role // one of them is needed, or RoleAdmin
	AllBuckets bool          // and a key for all buckets

	Faults       []code // the faults that it returns, besides the faults of its parameters and its body, of keys, and of a store that fails
	OptionalBody bool   // may be missing
	MaxBody      int64  // bytes; 0 is maxControlBytes
	StrictQuery  bool   // an unknown parameter is a fault
	Events       bool   // the response is server-sent events, whose data are Out
	InParts      bool   // clients make it in several requests, which have one record in the audit
}

const maxControlBytes = 64 << 10

// Described is the description of an [Operation], for openapi.yaml and the docs.
type Described struct {
	ID, Method, Path, Summary, Description, Answer string

	Commands     []string
	Tags         []string // the servers that have it: producer, operator
	Roles        []apikey.Role
	AllBuckets   bool
	Codes        []string // of its own faults
	Statuses     []int    // of these
	OptionalBody bool
	Events       bool
	InParts      bool
	In, Out      reflect.Type
}

func (op *Operation[In, Out]) described() *Described {
	d := &Described{
		ID: op.ID, Method: op.Method, Path: op.Path, Summary: op.Summary, Description: op.Description, Answer: op.Answer, Commands: op.Commands, Roles: op.Roles, AllBuckets: op.AllBuckets,
		OptionalBody: op.OptionalBody, Events: op.Events, InParts: op.InParts, In: reflect.TypeFor[In](), Out: reflect.TypeFor[Out](),
	}
	for _, c := range op.Faults {
		d.Codes, d.Statuses = append(d.Codes, string(c)), append(d.Statuses, kinds[c].status)
	}
	return d
}

// bind returns the route of an operation. do carries it out. Its error is a *fault or a *problem; of returns the fault of any other error.
func bind[In, Out any](of func(r *http.Request, err error) *fault, op *Operation[In, Out], do func(r *http.Request, in *In) (Out, error)) route {
	d := op.described()
	serve := func(w http.ResponseWriter, r *http.Request) {
		in, f := op.read(w, r)
		if f != nil {
			f.write(w, r)
			return
		}
		out, err := recorded(of, d, w, r, in, do)
		if err != nil {
			writeFault(w, r, err, of)
			return
		}
		status := http.StatusOK
		if answer, ok := any(out).(interface{ Status() int }); ok {
			status = answer.Status()
		}
		if r.Method != http.MethodGet { // a change has been made: its response is written in any case
			writeJSON(w, status, out)
		} else if f := usageOf(r).answer(w, status, out); f != nil {
			f.write(w, r)
		}
	}
	return route{op.Method, op.Path, serve, rights{roles: op.Roles, allBuckets: op.AllBuckets}, d}
}

// read reads the input of a request.
func (op *Operation[In, Out]) read(w http.ResponseWriter, r *http.Request) (*In, *fault) {
	in := new(In)
	of, fields := reflect.ValueOf(in).Elem(), inputOf(reflect.TypeFor[In]())
	f := readParameters(r, fields, of, op.StrictQuery)
	if f == nil && takesBody(fields) && (!op.OptionalBody || r.ContentLength != 0) {
		f = readMembers(w, r, fields, of, cmp.Or(op.MaxBody, maxControlBytes))
	}
	return in, f
}

func writeFault(w http.ResponseWriter, r *http.Request, err error, of func(r *http.Request, err error) *fault) {
	switch err := err.(type) { //nolint:errorlint // both are made here, and never wrapped
	case *fault:
		err.write(w, r)
	case *problem:
		err.write(w)
	default:
		of(r, err).write(w, r)
	}
}

// ContentType returns the content type of the request's body.
func (op *Operation[In, Out]) ContentType() string {
	if slices.ContainsFunc(inputOf(reflect.TypeFor[In]()), func(f field) bool { return f.in == inLines }) {
		return typeNDJSON
	}
	return typeJSON
}

// Request builds the request of an operation: its path with the query, and its body, nil if it has none.
func (op *Operation[In, Out]) Request(in *In) (target string, body []byte, err error) {
	w := requestWriter{path: op.Path}
	if err := w.fields(inputOf(reflect.TypeFor[In]()), reflect.ValueOf(in).Elem()); err != nil {
		return "", nil, err
	}
	target = w.path
	if len(w.query) > 0 {
		target += "?" + w.query.Encode()
	}
	if w.raw != nil {
		return target, w.raw, nil
	}
	if len(w.members) == 0 && (op.OptionalBody || !takesBody(inputOf(reflect.TypeFor[In]()))) {
		return target, nil, nil
	}
	return target, append(append([]byte("{"), bytes.Join(w.members, []byte(","))...), '}'), nil
}
