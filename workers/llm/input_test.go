package llm

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// Requests as the APIs take them, and of which kind their input is.
func TestInput(t *testing.T) {
	t.Parallel()
	const tool = `{"model":"m","input":"a","tools":[{"type":"function","name":"f"},`
	for body, want := range map[string]input{
		`{"model":"m","input":"a"}`: inputText,
		`{"model":"m","input":[{"content":[{"type":"input_image","file_id":"f"}]}]}`:                            inputText,
		`{"model":"m","input":[{"content":[{"type":"input_file","file_url":"https://x"}]}]}`:                    inputDocuments,
		`{"model":"m","messages":[{"content":[{"type":"document","source":{"type":"base64","data":"JVBE"}}]}]}`: inputDocuments,
		`{"model":"m","messages":[{"content":[{"type":"document","source":{"type":"text","data":"Hello"}}]}]}`:  inputText,
		`{"model":"m","input":"a","previous_response_id":"resp_1"}`:                                             inputReferences,
		`{"model":"m","input":"a","previous_response_id":null}`:                                                 inputText,
		`{"model":"m","input":"a","conversation":{"id":"conv_1"}}`:                                              inputReferences,
		`{"prompt":{"id":"pmpt_1","variables":{"a":"b"}}}`:                                                      inputReferences,
		`{"model":"m","prompt":"text"}`:                                                                         inputText,
		`{"model":"m","input":[{"type":"item_reference","id":"msg_1"}]}`:                                        inputReferences,
		`{"assistant_id":"asst_1"}`:                                                                             inputReferences,
		tool + `{"type":"custom","name":"g"},{"type":"local_shell"},{"type":"computer_use_preview"}]}`:          inputText,
		tool + `{"type":"web_search_2025_08_26"}]}`:                                                             inputSearches,
		tool + `{"type":"file_search","vector_store_ids":["vs"]}]}`:                                             inputSearches,
		tool + `{"type":"mcp","server_label":"x"}],"previous_response_id":"resp_1"}`:                            inputSearches,
		tool + `{"type":"tool_of_tomorrow"}]}`:                                                                  inputSearches,
		`{"model":"m","messages":[],"web_search_options":{}}`:                                                   inputSearches,
		`{"model":"m","messages":[],"data_sources":[{"type":"azure_search"}]}`:                                  inputSearches,
		`{"model":"m","messages":[],"tools":[{"name":"f","input_schema":{}},{"type":"text_editor_20250728","name":"e"},{"type":"bash_20250124"},{"type":"memory_20250818"}]}`: inputText,
		`{"model":"m","messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`:                                                                            inputSearches,
		`{"model":"m","messages":[],"tools":7}`: inputText,
	} {
		r, err := parse(OpenAI, endpoint{}, ReadBody([]byte(body)))
		if err != nil || r.input != want {
			t.Errorf("%s: kind %d, %v; want %d", body, r.input, err, want)
		}
	}
}

// After 20 requests of another kind a text of 1,000 bytes reserves what texts do, and a request of that kind what they have used.
func TestOtherInputChangesNoEstimateOfText(t *testing.T) {
	t.Parallel()
	c := valid(OpenAI)
	plain := []byte(`{"model":"m","input":"` + strings.Repeat("a", 1000) + `"}`)
	for name, more := range map[string]string{
		"web search": `"tools":[{"type":"web_search"}]`, "file search": `"tools":[{"type":"file_search"}]`, "chained": `"previous_response_id":"resp_1"`,
		"conversation": `"conversation":"conv_1"`, "stored prompt": `"prompt":{"id":"pmpt_1"}`, "Anthropic's search": `"tools":[{"type":"web_search_20250305","name":"web_search"}]`,
	} {
		learned := &LearnedEstimates{}
		short := []byte(`{"model":"m","input":"What is new?",` + more + `}`)
		before, err := Estimate(c, "", short, learned)
		if err != nil || before[shaper.UnitInput] < DefaultExpectedInput {
			t.Errorf("%s: the first one reserves %s, %v", name, before, err)
		}
		r, _ := parse(OpenAI, endpoint{}, ReadBody(short))
		for range 20 {
			learned.note(r, shaper.Units{shaper.UnitInput: 30_000, shaper.UnitOutput: 2000})
		}
		text, err := Estimate(c, "", plain, learned)
		if tokens, _ := text.Of(shaper.UnitTokens); err != nil || tokens > 1000 {
			t.Errorf("%s: 1,000 bytes of text reserve %s, %v", name, text, err)
		}
		if after, err := Estimate(c, "", short, learned); err != nil || after[shaper.UnitInput] < 29_990 || after[shaper.UnitInput] > 30_010 || after[shaper.UnitOutput] != 2000 {
			t.Errorf("%s: then it reserves %s, %v", name, after, err)
		}
	}
}

// Of a form that nobody knows, what is beside the text adds to the next text once, and not for each of its bytes.
func TestHiddenInputOfAnUnknownForm(t *testing.T) {
	t.Parallel()
	c, learned := valid(OpenAI), &LearnedEstimates{}
	short := []byte(`{"model":"m","messages":[{"role":"user","content":"Hello"}],"search_of_tomorrow":true}`)
	r, _ := parse(OpenAI, endpoint{}, ReadBody(short))
	for range 20 {
		learned.note(r, shaper.Units{shaper.UnitInput: 21_000, shaper.UnitOutput: 100})
	}
	long, err := Estimate(c, "", []byte(`{"model":"m","input":"`+strings.Repeat("a", 100_000)+`"}`), learned)
	if err != nil || long[shaper.UnitInput] > 121_000 || long[shaper.UnitInput] < 21_000 {
		t.Errorf("100,000 bytes of text reserve %s, %v", long, err)
	}
}

// Outputs are choices times prompts. An embedding has none.
func TestOutputs(t *testing.T) {
	t.Parallel()
	texts, tokens := strings.Repeat(`"a",`, 20)+`"a"`, strings.Repeat(`[1,2],`, 19)+`[3]`
	c := valid(OpenAI)
	for _, one := range []struct {
		path, body string
		want       int64
	}{
		{"/v1/completions", `{"model":"m","prompt":[` + texts + `],"max_tokens":200}`, 21 * 200},
		{"/v1/completions", `{"model":"m","prompt":[` + texts + `],"max_tokens":200,"n":2,"best_of":3}`, 21 * 3 * 200},
		{"/v1/completions", `{"model":"m","prompt":[` + tokens + `],"max_tokens":200}`, 20 * 200},
		{"/v1/completions", `{"model":"m","prompt":[1,2,3],"max_tokens":200}`, 200},
		{"/v1/completions", `{"model":"m","prompt":"a","max_tokens":200,"n":2}`, 400},
		{"/v1/completions", `{"model":"m","prompt":[]}`, 500},
		{"/v1/completions", `{"model":"m","prompt":[` + texts + `]}`, 21 * 500},
		{"/v1/chat/completions", `{"model":"m","messages":[{},{},{}],"n":2}`, 1000},
		{"/v1/responses", `{"model":"m","input":[{"content":"a"},{"content":"b"}],"max_output_tokens":70}`, 70},
		{"/v1/embeddings", `{"model":"m","input":"a"}`, 0},
		{"", `{"model":"m","input":[` + texts + `]}`, 0},
		{"/v1/embeddings", `{"model":"m","input":[` + tokens + `]}`, 0},
	} {
		units, err := Estimate(c, one.path, []byte(one.body), nil)
		if err != nil || units[shaper.UnitOutput] != one.want {
			t.Errorf("%s %.80s: %s, %v; want an output of %d", one.path, one.body, units, err, one.want)
		}
	}
	learned := &LearnedEstimates{}
	r, _ := parse(OpenAI, endpoint{}, ReadBody([]byte(`{"model":"m","prompt":[`+texts+`]}`)))
	for range 20 {
		learned.note(r, shaper.Units{shaper.UnitInput: 21, shaper.UnitOutput: 2100})
	}
	if units, err := Estimate(c, "", []byte(`{"model":"m","prompt":"a"}`), learned); err != nil || units[shaper.UnitOutput] != 100 {
		t.Errorf("after lists of prompts one prompt reserves %s, %v", units, err)
	}
}
