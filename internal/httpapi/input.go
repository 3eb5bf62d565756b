package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/inputtext"
	"github.com/tundish-io/tundish/shaper"
)

// The part of a request that holds a field of the input of an [Operation], by its tag in. Without a tag it is a member of the body.
const (
	inPath  = "path"
	inQuery = "query"
	inBody  = "body"  // it is the body: a json.RawMessage, whose members its function reads
	inLines = "lines" // it is the body: lines of JSON, which its function reads
)

// field is a field of the input of an operation, named by its json tag. Its tag jsonschema has its bounds, as in openapi.yaml: minimum, maximum,
// minItems and maxItems of a number or a list; and required.
type field struct {
	name, in string
	index    []int
	required bool
	least    int64
	most     int64 // 0: as large as a number can be
	fields   []field
}

var inputs sync.Map // of reflect.Type: []field

func inputOf(t reflect.Type) []field {
	if known, ok := inputs.Load(t); ok {
		return known.([]field) //nolint:forcetypeassert // as stored below
	}
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || f.Tag.Get("json") == ",inline" {
			for _, below := range inputOf(f.Type) {
				below.index = append([]int{i}, below.index...)
				if below.in == "" {
					below.in = f.Tag.Get("in")
				}
				fields = append(fields, below)
			}
			continue
		}
		one := field{name: name, in: f.Tag.Get("in"), index: f.Index}
		for rule := range strings.SplitSeq(f.Tag.Get("jsonschema"), ",") {
			key, value, _ := strings.Cut(rule, "=")
			n, _ := strconv.ParseInt(value, 10, 64)
			switch key {
			case "required":
				one.required = true
			case "minimum", "minItems":
				one.least = n
			case "maximum", "maxItems":
				one.most = n
			}
		}
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[time.Time]() && f.Type != reflect.TypeFor[admission.Rate]() {
			one.fields = inputOf(f.Type)
		}
		fields = append(fields, one)
	}
	inputs.Store(t, fields)
	return fields
}

// readParameters reads the parameters in the path and in the query. With strict, an unknown parameter of the query is a fault.
func readParameters(r *http.Request, fields []field, in reflect.Value, strict bool) *fault {
	var d jobDecoder // for its readers of values
	query := r.URL.Query()
	for i := range fields {
		f := &fields[i]
		switch f.in {
		case inPath:
			in.FieldByIndex(f.index).SetString(r.PathValue(f.name))
		case inQuery:
			if texts, given := query[f.name]; given {
				d.parameter(f, in.FieldByIndex(f.index), texts, strict)
			} else if f.required {
				d.fail(f.name, "is missing: name the "+f.name+" as ?"+f.name+"=")
			}
			delete(query, f.name)
		}
	}
	if strict {
		for name := range query {
			d.fail(name, "is not taken here: want "+namesIn(fields, inQuery))
		}
	}
	if len(d.errs) > 0 {
		return invalid(fieldErrors(errors.Join(d.errs...)))
	}
	return nil
}

// takesBody reports whether some of the fields are in a body.
func takesBody(fields []field) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return f.in != inPath && f.in != inQuery })
}

// readMembers reads a body of up to most bytes, strictly, and returns the faults of all its members.
func readMembers(w http.ResponseWriter, r *http.Request, fields []field, in reflect.Value, most int64) *fault {
	if at := slices.IndexFunc(fields, func(f field) bool { return f.in == inLines }); at >= 0 {
		_, f := mediaType(r, typeNDJSON)
		var body []byte
		if f == nil {
			body, f = readText(w, r, most, "send the lines in parts")
		}
		in.FieldByIndex(fields[at].index).SetBytes(inputtext.Newlines(body))
		return f
	}
	return readBodyBy(w, r, most, func(d *jobDecoder, body []byte) bool {
		if at := slices.IndexFunc(fields, func(f field) bool { return f.in == inBody }); at >= 0 {
			in.FieldByIndex(fields[at].index).SetBytes(body)
			return true
		}
		return d.object(body, func(d *jobDecoder, name string, value []byte) { d.input(fields, in, name, value) })
	})
}

// input reads a member of a body, or of an object in it.
func (d *jobDecoder) input(fields []field, of reflect.Value, name string, value []byte) {
	at := slices.IndexFunc(fields, func(f field) bool { return f.name == name && f.in == "" })
	if at < 0 {
		d.fail(name, "is not taken here: want "+namesIn(fields, ""))
		return
	}
	f := &fields[at]
	switch to := of.FieldByIndex(f.index).Addr().Interface().(type) {
	case *string:
		*to, _ = d.text(name, value)
	case **string:
		if text, given := d.text(name, value); given {
			*to = &text
		}
	case *bool:
		*to = d.truth(name, value)
	case *int:
		*to = int(d.number(f, string(value)))
	case *int64:
		*to = d.number(f, string(value))
	case *time.Time:
		if text, given := d.text(name, value); given {
			*to = d.instant(name, text)
		}
	case *admission.Rate:
		if rate := d.rate(name, value); rate != nil {
			*to = *rate
		}
	case *[]string:
		if json.Unmarshal(value, to) != nil || int64(len(*to)) < f.least || int64(len(*to)) > f.most {
			d.fail(name, fmt.Sprintf("want a list of %d to %d %s", f.least, f.most, name))
		}
	default:
		below := of.FieldByIndex(f.index)
		if !d.object(value, func(d *jobDecoder, name string, value []byte) { d.input(f.fields, below, name, value) }) {
			d.fail(name, "want an object")
		}
	}
}

// number reads a whole number within the bounds of its field.
func (d *jobDecoder) number(f *field, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 32)
	switch {
	case err == nil && n >= f.least && (f.most == 0 || n <= f.most):
		return n
	case f.most > 0:
		d.fail(f.name, fmt.Sprintf("want %d to %d", f.least, f.most))
	default:
		d.fail(f.name, fmt.Sprintf("want a whole number, %d or more", f.least))
	}
	return 0
}

// parameter reads a parameter of the query: of several of its name the last one, but of a list.
func (d *jobDecoder) parameter(f *field, value reflect.Value, texts []string, strict bool) {
	text := texts[len(texts)-1]
	switch to := value.Addr().Interface().(type) {
	case *[]string:
		*to = texts
	case *string:
		*to = text
	case *shaper.State:
		*to = shaper.State(text)
	case **string:
		*to = &text
	case *bool:
		if *to = text == "true"; strict {
			d.truth(f.name, []byte(text))
		}
	case *int:
		*to = int(d.number(f, text))
	case **int:
		n := int(d.number(f, text))
		*to = &n
	case *time.Time:
		*to = d.instant(f.name, text)
	}
}

// namesIn lists the fields of one place: "a, b or c".
func namesIn(fields []field, in string) string {
	var names []string
	for i := range fields {
		if fields[i].in == in {
			names = append(names, fields[i].name)
		}
	}
	return anyOf(names)
}

// requestWriter writes what a program gives to an operation.
type requestWriter struct {
	path    string
	query   url.Values
	members [][]byte
	raw     []byte
}

// fields writes the input of an operation. Zero values are left out, except in a path.
func (w *requestWriter) fields(fields []field, of reflect.Value) error {
	w.query = url.Values{}
	for i := range fields {
		f := &fields[i]
		value := of.FieldByIndex(f.index)
		switch f.in {
		case inPath:
			w.path = strings.Replace(w.path, "{"+f.name+"}", url.PathEscape(value.String()), 1)
		case inBody, inLines:
			w.raw = value.Bytes()
		case inQuery:
			if !value.IsZero() || f.required {
				w.query[f.name] = parameterText(value)
			}
		default:
			if value.IsZero() {
				continue
			}
			text, err := member(f.name, value.Interface())
			if err != nil {
				return fmt.Errorf("write %s: %w", f.name, err)
			}
			w.members = append(w.members, text)
		}
	}
	return nil
}

func parameterText(value reflect.Value) []string {
	switch v := reflect.Indirect(value).Interface().(type) {
	case []string:
		return v
	case time.Time:
		return []string{v.UTC().Format(time.RFC3339Nano)}
	default:
		return []string{fmt.Sprint(v)}
	}
}

// member is a member of a JSON object.
func member(name string, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	key, err := json.Marshal(name)
	return append(append(key, ':'), text...), err
}
