package main

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tundish-io/tundish/internal/httpapi"
)

// sharedParameters are described once in openapi-by-hand.yaml.
var sharedParameters = []string{"bucket", "pool", "schedule", "limit", "id"}

// operation describes an operation.
func (s *schemas) operation(op *httpapi.Described) (*yaml.Node, error) {
	n := mapping("tags", list(yaml.FlowStyle, texts(op.Tags)...), "operationId", op.ID)
	roles := make([]any, len(op.Roles))
	for i, role := range op.Roles {
		roles[i] = string(role)
	}
	put(n, "security", list(yaml.FlowStyle, short("key", list(yaml.FlowStyle, roles...))))
	put(n, "summary", op.Summary)
	if op.Description != "" {
		put(n, "description", op.Description)
	}
	in, err := s.input(op.In)
	if err != nil {
		return nil, err
	}
	parameters := list(0, in.parameters...)
	parameters.Content = append(parameters.Content, ref("parameters", "requestID"))
	put(n, "parameters", parameters)
	if in.body != nil {
		body := mapping()
		if !op.OptionalBody {
			put(body, "required", true)
		}
		media := content(in.mediaType, in.body)
		if op.Method == http.MethodPatch {
			put(media, "application/merge-patch+json", short("schema", in.body))
		}
		put(body, "content", media)
		put(n, "requestBody", body)
	}
	out, err := s.schemaOf(op.Out)
	if err != nil {
		return nil, err
	}
	put(n, "responses", responses(op, out, in))
	return n, nil
}

func responses(op *httpapi.Described, out *yaml.Node, in *input) *yaml.Node {
	answer := op.Answer
	switch {
	case answer != "":
	case op.Method == http.MethodGet:
		answer = "What was asked for."
	default:
		answer = "As it is now."
	}
	n := mapping()
	if op.Events {
		put(n, "200", mapping("description", answer, "content", content("text/event-stream", mapping("type", "string"))))
	} else {
		put(n, "200", mapping("description", answer, "content", content("application/json", out)))
	}
	if _, slow := op.Out.MethodByName("Status"); slow {
		put(n, "202", mapping("description", "It takes long, and goes on without the client.", "content", content("application/json", out)))
	}
	statuses := append([]int{http.StatusForbidden, http.StatusInternalServerError}, op.Statuses...)
	if strings.Contains(op.Path, "{") {
		statuses = append(statuses, http.StatusNotFound)
	}
	if op.Method != http.MethodGet || in.asks {
		statuses = append(statuses, http.StatusBadRequest)
	}
	if in.body != nil {
		statuses = append(statuses, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	problems := map[int]string{http.StatusUnauthorized: "Unauthorized", http.StatusServiceUnavailable: "Unavailable"}
	for _, status := range statuses {
		problems[status] = "Problem"
	}
	codes := map[int][]string{}
	for i, status := range op.Statuses {
		codes[status] = append(codes[status], "`"+op.Codes[i]+"`")
	}
	for status := range 600 {
		name, ok := problems[status]
		switch {
		case !ok:
		case codes[status] != nil:
			text := "A problem with the code " + strings.Join(codes[status], " or ")
			if status == http.StatusNotFound {
				text += ", or of something that is not there"
			}
			put(n, strconv.Itoa(status), mapping("description", text, "content", content("application/problem+json", ref("schemas", "Problem"))))
		default:
			put(n, strconv.Itoa(status), ref("responses", name))
		}
	}
	return n
}

func content(mediaType string, schema *yaml.Node) *yaml.Node {
	return mapping(mediaType, short("schema", schema))
}

func texts(list []string) []any {
	values := make([]any, len(list))
	for i, text := range list {
		values[i] = text
	}
	return values
}

// input is the input of an operation.
type input struct {
	parameters []any
	asks       bool       // has a parameter of the query
	body       *yaml.Node // nil without one
	mediaType  string
}

func (s *schemas) input(t reflect.Type) (*input, error) {
	r := inputReader{schemas: s, in: &input{mediaType: "application/json"}, properties: mapping()}
	if err := r.addAll(t, ""); err != nil {
		return nil, err
	}
	if len(r.properties.Content) > 0 {
		r.in.body = mapping("type", "object", "additionalProperties", false, "properties", r.properties)
		if len(r.required) > 0 {
			put(r.in.body, "required", list(yaml.FlowStyle, r.required...))
		}
	}
	return r.in, nil
}

// inputReader reads the fields of an input.
type inputReader struct {
	*schemas
	in         *input
	properties *yaml.Node
	required   []any
}

// addAll adds the fields of a type. place is the default place of fields without one, "" in an object that is the body.
func (r *inputReader) addAll(t reflect.Type, place string) error {
	for i := range t.NumField() {
		f := t.Field(i)
		at := f.Tag.Get("in")
		if at == "" {
			at = place
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		var err error
		if f.Anonymous || name == "" && options == "inline" {
			err = r.addAll(f.Type, at)
		} else {
			err = r.add(t, &f, name, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *inputReader) add(t reflect.Type, f *reflect.StructField, name, at string) error {
	switch {
	case at == "body":
		kind := "Flow"
		if t.Kind() == reflect.Struct && strings.Contains(t.Name(), "Group") {
			kind = "Group"
		}
		r.in.body = ref("schemas", strings.Replace(f.Tag.Get("schema"), "$", kind, 1))
		return nil
	case at == "lines":
		r.in.mediaType, r.in.body = "application/x-ndjson", ref("schemas", f.Tag.Get("schema"))
		return nil
	case at == "path" && slices.Contains(sharedParameters, name):
		r.in.parameters = append(r.in.parameters, ref("parameters", name))
		return nil
	}
	schema, err := r.field(t, f)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	needed := at == "path" || slices.Contains(strings.Split(f.Tag.Get("jsonschema"), ","), "required")
	if at == "" {
		put(r.properties, name, schema)
		if needed {
			r.required = append(r.required, name)
		}
		return nil
	}
	p := mapping("name", name, "in", at, "required", needed)
	if text := r.comment(t, f.Name); text != "" {
		put(p, "description", text)
	}
	put(p, "schema", without(schema, "description"))
	r.in.parameters, r.in.asks = append(r.in.parameters, p), r.in.asks || at == "query"
	return nil
}
