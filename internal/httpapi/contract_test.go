package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"go.yaml.in/yaml/v3"

	"github.com/tundish-io/tundish/internal/must"
)

// contracts are the descriptions of the API that every response keeps: the served one, which is generated, and the one of 0.1.0, which clients know.
var contracts = map[string]func() (routers.Router, error){
	"openapi.yaml":                     sync.OnceValues(func() (routers.Router, error) { return contractRoutes("openapi.yaml") }),
	"../../test/testdata/openapi.yaml": sync.OnceValues(func() (routers.Router, error) { return contractRoutes("../../test/testdata/openapi.yaml") }),
}

// contractRoutes finds the operation of a request in a description. Objects of the served one have only the members that it names. Those of the
// release may have more: a new member breaks no client.
func contractRoutes(name string) (routers.Router, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	delete(tree, "servers") // the tests' ports are others
	if name == "openapi.yaml" {
		closeObjects(tree, tree["components"].(map[string]any)["schemas"].(map[string]any), false)
	}
	if text, err = json.Marshal(tree); err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	return gorillamux.NewRouter(doc)
}

// closeObjects lets each object in the tree have the members that it names, and no others. Of a schema that several make up together
// (part), that is said where they meet.
func closeObjects(node any, schemas map[string]any, part bool) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			closeObjects(child, schemas, part)
		}
	case map[string]any:
		parts, composed := node["allOf"].([]any)
		for i, one := range parts {
			if ref, ok := one.(map[string]any)["$ref"].(string); ok {
				parts[i] = maps.Clone(schemas[path.Base(ref)].(map[string]any))
				delete(parts[i].(map[string]any), "additionalProperties")
			}
		}
		_, open := node["additionalProperties"]
		_, named := node["properties"].(map[string]any)
		switch {
		case part || open:
		case composed:
			node["unevaluatedProperties"] = false
		case named:
			node["additionalProperties"] = false
		}
		for name, child := range node {
			closeObjects(child, schemas, name == "allOf")
		}
	}
}

// wantContract demands that openapi.yaml tells of this answer: its status, its headers, and each member of its body. What leads to
// no operation is a 404 or a 405, whatever the contract says.
func (a *answer) wantContract(r *http.Request) {
	a.t.Helper()
	for name, read := range contracts {
		routes, err := read()
		if err != nil {
			a.t.Errorf("%s: %v", name, err)
			continue
		}
		a.wantContractOf(name, routes, r)
	}
}

func (a *answer) wantContractOf(name string, routes routers.Router, r *http.Request) {
	a.t.Helper()
	proxied := strings.HasPrefix(r.URL.Path, "/v1/proxy/")
	if a.status == http.StatusMethodNotAllowed || proxied && a.header.Get("Content-Type") != "application/problem+json" { // the API's answer
		return
	}
	if proxied { // its path has any number of parts
		r = r.Clone(r.Context())
		bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/proxy/"), "/")
		r.URL.Path, r.URL.RawPath = "/v1/proxy/"+bucket, ""
	}
	route, values, err := routes.FindRoute(r)
	if errors.Is(err, routers.ErrMethodNotAllowed) && (r.Method == http.MethodHead || strings.HasPrefix(r.URL.Path, "/v1/limits/")) { // HEAD, and the check, which takes any method as GET
		asGet := r.Clone(r.Context())
		asGet.Method = http.MethodGet
		route, values, err = routes.FindRoute(asGet)
	}
	if err != nil {
		if a.status < 400 && name == "openapi.yaml" { // the one of the release does not know what came later
			a.t.Errorf("%s %s: %d, and %s has no such operation: %v", r.Method, r.URL, a.status, name, err)
		}
		return
	}
	if name != "openapi.yaml" && asksForNew(a.t, route, r) {
		return
	}
	err = openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: values, Route: route},
		Status:                 a.status,
		Header:                 a.header,
		Body:                   io.NopCloser(strings.NewReader(a.text)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: a.header.Get("Content-Type") == "application/yaml"},
	})
	if err != nil {
		a.t.Errorf("%s %s: %d %s\nis not as %s says: %v", r.Method, r.URL, a.status, a.text, name, err)
	}
}

// asksForNew reports whether a request has a parameter of the query that came after the release: no client of the release sends it.
func asksForNew(t *testing.T, before *routers.Route, r *http.Request) bool {
	t.Helper()
	routes := must.Get(contracts["openapi.yaml"]())(t)
	now, _, err := routes.FindRoute(r)
	if err != nil {
		return false
	}
	takes := func(route *routers.Route, name string) bool {
		return route.Operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, name) != nil
	}
	for name := range r.URL.Query() {
		if takes(now, name) && !takes(before, name) {
			return true
		}
	}
	return false
}
