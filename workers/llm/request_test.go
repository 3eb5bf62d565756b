package llm

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// faultFields are the fields of joined faults.
func faultFields(err error) (fields []string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			fields = append(fields, faultFields(err)...)
		}
		return fields
	}
	if fault, ok := errors.AsType[*shaper.FieldError](err); ok {
		fields = append(fields, fault.Field)
	}
	return fields
}

// chat is the body of a request with these members besides.
func chat(members string) string {
	return `{"model":"m","messages":[{"role":"user","content":"canary"}]` + members + `}`
}

func TestCheckJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		api   API
		job   shaper.Job
		fault string // the fields of the faults
		says  string
	}{
		{OpenAI, shaper.Job{URL: "/v1/chat/completions", Payload: []byte(chat(""))}, "", ""},
		{OpenAI, shaper.Job{Method: "POST", Payload: []byte(chat(`,"stream":false,"max_tokens":null,"n":2`))}, "", ""},
		{OpenAI, shaper.Job{Payload: []byte(chat(`,"stream":null,"max_tokens":1e3`))}, "", ""},
		{OpenAI, shaper.Job{Payload: []byte(`{"model":"m","input":"text"}`)}, "", ""},
		{OpenAI, shaper.Job{Payload: []byte(`{"model":"m","prompt":"text"}`)}, "", ""},
		{Anthropic, shaper.Job{Payload: []byte(chat(`,"max_tokens":0,"stream":false`))}, "", ""},

		{OpenAI, shaper.Job{}, "payload", `such as {"model": "gpt-4o-mini"`},
		{Anthropic, shaper.Job{}, "payload", `"model" and "messages"`},
		{OpenAI, shaper.Job{Payload: []byte("canary")}, "payload", "as OpenAI's API takes it"},
		{OpenAI, shaper.Job{Payload: []byte(`[{"model":"canary"}]`)}, "payload", "a JSON object"},
		{OpenAI, shaper.Job{Payload: []byte(chat("") + "{}")}, "payload", "a JSON object"},
		{OpenAI, shaper.Job{Payload: []byte(chat(","))}, "payload", "a JSON object"},
		{OpenAI, shaper.Job{Payload: []byte(`{"model":"m"}`)}, "payload", `"messages", "input", "prompt"`},
		{OpenAI, shaper.Job{Payload: []byte(`{"model":"m","messages":null}`)}, "payload", "messages"},
		{Anthropic, shaper.Job{Payload: []byte(`{"model":"m","input":"canary"}`)}, "payload", "as Anthropic's API takes it"},
		{OpenAI, shaper.Job{Payload: []byte(`{"messages":[]}`)}, "payload.model", "want the name of a model"},
		{OpenAI, shaper.Job{Payload: []byte(`{"model":7,"messages":[]}`)}, "payload.model", "want the name of a model"},
		{OpenAI, shaper.Job{Payload: []byte(`{"MODEL":"m","messages":[]}`)}, "payload.model", "want the name of a model"},
		{OpenAI, shaper.Job{Payload: []byte(`{"model":"` + strings.Repeat("m", 201) + `","messages":[]}`)}, "payload.model", "at most 200 bytes"},
		{OpenAI, shaper.Job{Payload: []byte(chat(`,"model":"n"`))}, "payload.model", "is there twice"},
		{OpenAI, shaper.Job{Payload: []byte(chat(`,"stream":true`))}, "payload.stream", "queued jobs cannot stream"},
		{Anthropic, shaper.Job{Payload: []byte(chat(`,"stream":true`))}, "payload.stream", "queued jobs cannot stream"},
		{OpenAI, shaper.Job{Payload: []byte(chat(`,"stream":1`))}, "payload.stream", "queued jobs cannot stream"},
		{OpenAI, shaper.Job{Payload: []byte(chat(`,"stream":false,"stream":true`))}, "payload.stream payload.stream", "is there twice"},
		{OpenAI, shaper.Job{Payload: []byte(chat(`,"max_tokens":-1,"max_completion_tokens":"9","max_output_tokens":1.5,"n":0`))}, "payload.n payload.max_tokens payload.max_completion_tokens payload.max_output_tokens", "whole number"},
		{OpenAI, shaper.Job{Method: "GET", URL: "/v1/models"}, "method payload", "want POST"},
		{OpenAI, shaper.Job{URL: "/../x", Payload: []byte(chat(`,"stream":true`))}, "path payload.stream", "climbs"},
		{OpenAI, shaper.Job{Headers: map[string][]string{"Host": {"x"}}, Payload: []byte(chat(""))}, "headers.Host", "worker's"},
	} {
		config := valid(c.api)
		err := config.CheckJob(&c.job)
		if got := strings.Join(faultFields(err), " "); got != c.fault || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: faults of %q, want %q; %v", c.api, c.job.Payload, got, c.fault, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the fault repeats the prompt: %v", c.job.Payload, err)
		}
	}
}

// A model that no pattern allows is refused, and the fault says which are taken.
func TestRefusedModel(t *testing.T) {
	t.Parallel()
	c := valid(OpenAI)
	c.Models = []string{"gpt-4o-mini*", "o4"}
	err := c.CheckJob(&shaper.Job{Payload: []byte(`{"model":"gpt-5","messages":[]}`)})
	if want := `payload.model: "gpt-5": this bucket takes the models gpt-4o-mini*, o4: name one of them, or add a pattern to llm.models`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := c.CheckJob(&shaper.Job{Payload: []byte(`{"model":"o4","messages":[]}`)}); err != nil {
		t.Error(err)
	}
	if _, err := Estimate(c, "", []byte(`{"model":"gpt-5","messages":[]}`), nil); err == nil {
		t.Error("an estimate for a refused model")
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		chat(""), chat(`,"stream":true,"max_tokens":1e400,"n":9e18`), `{"model":"m","input":[[1,2],[3]]}`, `{"":{},"":1}`, `[]`, `{`, "\xff",
		`{"model":"m","messages":[{"content":[{"type":"document","source":{"type":"text","data":"x"}},{"type":"image"}]}]}`,
	} {
		f.Add([]byte(seed))
	}
	learned := learnedOf("m", 20, 3, 700)
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, api := range []API{OpenAI, Anthropic} {
			c := valid(api)
			units, err := Estimate(c, "", payload, learned)
			if fields := faultFields(err); (err != nil) != (len(fields) > 0) || slices.Contains(fields, "method") {
				t.Fatalf("faults %q: %v", fields, err)
			}
			if err == nil && (units.Validate() != nil || len(units) != 2) {
				t.Fatalf("%q reserves %s: %v", payload, units, units.Validate())
			}
			r, _ := parse(api, endpoint{}, ReadBody(payload))
			if r != nil && (r.text > int64(4*len(payload))+3 || r.files > int64(len(payload)) || r.choices < 1) {
				t.Fatalf("%q is %+v", payload, r)
			}
		}
	})
}
