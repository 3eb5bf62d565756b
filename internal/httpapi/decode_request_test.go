package httpapi_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper"
)

// A job for an API has a path and a query, and a body of any kind or none.
func TestRequestOfAJob(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]shaper.Job{
		`{}`:                                    {},
		`{"payload":null}`:                      {},
		`{"method":"GET","path":"customers/7"}`: {Method: "GET", URL: "/customers/7"},
		`{"path":"/a","query":"x=1&y=a%20b"}`:   {URL: "/a?x=1&y=a%20b"},
		`{"query":"?x=1"}`:                      {URL: "?x=1"},
		`{"query":{"x":["1","2"],"a":"b c"}}`:   {URL: "?a=b+c&x=1&x=2"},
		`{"path":"a","query":{}}`:               {URL: "/a"},
		`{"body":"a=b","content_type":"application/x-www-form-urlencoded"}`: {
			Payload: []byte("a=b"), Headers: map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}},
		},
		`{"body_base64":"AP8="}`:                    {Payload: []byte{0, 255}},
		`{"payload": {"a" : 1}}`:                    {Payload: []byte(`{"a" : 1}`)},
		`{"url":"https://a.example/x","payload":1}`: {URL: "https://a.example/x", Payload: []byte("1")},
	} {
		got, err := httpapi.DecodeJob([]byte(text))
		if err != nil || got.Method != want.Method || got.URL != want.URL || string(got.Payload) != string(want.Payload) ||
			!maps.EqualFunc(got.Headers, want.Headers, func(a, b []string) bool { return slices.Equal(a, b) }) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, field := range map[string]string{
		`{"payload":1,"body":"a"}`:                           "body",
		`{"body":"a","body_base64":"AA=="}`:                  "body_base64",
		`{"body_base64":"AA"}`:                               "body_base64",
		`{"body_base64":"A A="}`:                             "body_base64",
		`{"body":1}`:                                         "body",
		`{"path":"a","url":"https://a.example","payload":1}`: "path",
		`{"path":"a?b=c"}`:                                   "path",
		`{"url":"/a"}`:                                       "url",
		`{"url":"?a"}`:                                       "url",
		`{"content_type":"text/plain"}`:                      "content_type",
		`{"body":"a","content_type":"a","headers":{"content-type":"b"}}`: "content_type",
		`{"query":1}`:        "query",
		`{"query":{"a":1}}`:  "query.a",
		`{"query":{"a":[]}}`: "query.a",
		`{"path":1}`:         "path",
	} {
		_, err := httpapi.DecodeJob([]byte(text))
		if fault, ok := errors.AsType[*shaper.FieldError](err); !ok || fault.Field != field {
			t.Errorf("%s: %v, want a fault of %s", text, err, field)
		}
	}
}
