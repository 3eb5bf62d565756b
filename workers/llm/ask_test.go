package llm

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
)

// What a chat that streams asks for, as it came and as the API gets it.
func TestAsk(t *testing.T) {
	t.Parallel()
	w := workerOf(t, valid(OpenAI))
	for name, c := range map[string]struct {
		path, body, want string // want "": as it came
	}{
		"no stream":               {"/v1/chat/completions", `{"model":"m","messages":[]}`, ""},
		"a stream":                {"/v1/chat/completions", `{ "model":"m","messages":[],"stream":true}`, `{"stream_options":{"include_usage":true}, "model":"m","messages":[],"stream":true}`},
		"a completion":            {"/v1/completions?x=1", `{"model":"m","prompt":"a","stream":true}`, `{"stream_options":{"include_usage":true},"model":"m","prompt":"a","stream":true}`},
		"other options":           {"/v1/chat/completions", `{"model":"m","messages":[],"stream":true,"stream_options":{"a": 1 }}`, `{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true,"a": 1 }}`},
		"no options":              {"/v1/chat/completions", `{"model":"m","messages":[],"stream":true,"stream_options":{ }}`, `{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true }}`},
		"null options":            {"/v1/chat/completions", `{"model":"m","stream_options":null,"messages":[],"stream":true}`, `{"model":"m","stream_options":{"include_usage":true},"messages":[],"stream":true}`},
		"usage that is asked for": {"/v1/chat/completions", `{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}`, ""},
		"usage that is not":       {"/v1/chat/completions", `{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":false}}`, `{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}`},
		"options that are none":   {"/v1/chat/completions", `{"model":"m","messages":[],"stream":true,"stream_options":7}`, ""},
		"a response":              {"/v1/responses", `{"model":"m","input":"a","stream":true}`, ""},
		"no JSON":                 {"/v1/chat/completions", `{"model":`, ""},
	} {
		a := w.Ask(c.path, []byte(c.body))
		want := c.want
		if want == "" {
			want = c.body
		}
		if string(a.Body) != want || a.hides != (c.want != "") {
			t.Errorf("%s: %s, hides %t; want %s", name, a.Body, a.hides, want)
		}
	}
	if a := w.Ask("/v1/models", nil); a.Units.String() != "input:0,output:0" || ReadBody(nil).Model("") != "" {
		t.Errorf("a question about models reserves %s", a.Units)
	}
	if a := w.Ask("/v1/chat/completions", []byte(chat(`,"max_tokens":70,"stream":true`))); a.Units["output"] != 70 || ReadBody(a.Body).Model("") != "m" {
		t.Errorf("a chat reserves %s", a.Units)
	}
	anthropic := workerOf(t, valid(Anthropic))
	if a := anthropic.Ask("/v1/messages", []byte(chat(`,"stream":true`))); a.hides {
		t.Error("Anthropic is asked for its usage")
	}
}

// A member is set, and all others stay.
func TestWithMember(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "stream_options", "\u00e9\"", ""}), rapid.SampledFrom([]any{1.5, "x{}", nil, []any{true}, map[string]any{"b": "}"}})).Draw(t, "object")
		text, err := json.Marshal(object)
		must.OK(t, err)
		if rapid.Bool().Draw(t, "spaced") {
			if text, err = json.MarshalIndent(object, " ", "\t"); err != nil {
				t.Fatal(err)
			}
		}
		object["b"] = []any{"new"}
		want := must.Get(json.Marshal(object))(t)
		var got any
		must.OK(t, json.Unmarshal(withMember(text, "b", json.RawMessage(`["new"]`)), &got))
		if again, err := json.Marshal(got); err != nil || string(again) != string(want) {
			t.Fatalf("%s became %s, want %s", text, again, want)
		}
	})
}
