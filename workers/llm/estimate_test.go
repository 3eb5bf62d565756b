package llm

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// learnedOf has so many answers of a model, each with as many input tokens for ten bytes and output tokens.
func learnedOf(model string, answers int, perTen, output int64) *LearnedEstimates {
	l := &LearnedEstimates{}
	for range answers {
		l.note(&request{model: model, content: content{text: 10}, choices: 1}, shaper.Units{shaper.UnitInput: perTen, shaper.UnitOutput: output})
	}
	return l
}

// Of the text, the names of members count, as they stand for what a provider writes around a message.
func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		api         API
		body        string
		text, files int64
	}{
		{OpenAI, `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`, 4 + 4 + 7 + 5, 0},
		{OpenAI, `{"model":"m","temperature":1,"user":"anna","metadata":{"a":"b"},"messages":[]}`, 0, 0},
		{OpenAI, `{"model":"m","input":"Hello"}`, 5, 0},
		{OpenAI, `{"model":"m","input":["Hello","ä"]}`, 7, 0},
		{OpenAI, `{"model":"m","input":[[1,2,3],[4]]}`, 16, 0},
		{OpenAI, `{"model":"m","input":"a","instructions":"bc","tools":[{"type":"function","name":"f"}]}`, 3 + 4 + 8 + 4 + 1, 0},
		{OpenAI, `{"model":"m","prompt":"abc","suffix":"d"}`, 4, 0},
		{OpenAI, `{"model":"m","messages":[{"content":[{"type":"text","text":"Hi"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`, 7 + 4 + 4 + 4 + 2, 1},
		{OpenAI, `{"model":"m","messages":[{"content":[{"type":"input_audio","input_audio":{"data":"AAAA"}},{"type":"file","file":{"file_data":"AAAA"}}]}]}`, 7, 2},
		{OpenAI, `{"model":"m","input":[{"content":[{"type":"input_image","image_url":"https://x"},{"type":"input_file","file_id":"f"}]}]}`, 7, 2},
		{Anthropic, `{"model":"m","system":"Be brief","messages":[{"role":"user","content":"Hello"}]}`, 8 + 4 + 4 + 7 + 5, 0},
		{Anthropic, `{"model":"m","messages":[{"content":[{"type":"image","source":{"type":"base64","data":"AAAA"}},{"type":"document","source":{"type":"url","url":"https://x"}}]}]}`, 7, 2},
		{Anthropic, `{"model":"m","messages":[{"content":[{"type":"document","source":{"type":"text","data":"Hello"}}]}]}`, 7 + 4 + 8 + 6 + 4 + 4 + 4 + 5, 0},
		{Anthropic, `{"model":"m","messages":[{"content":[{"type":"tool_result","content":[{"type":"image","source":{}}]}]}]}`, 7 + 4 + 11 + 7, 1},
	} {
		r, err := parse(c.api, endpoint{}, ReadBody([]byte(c.body)))
		if err != nil || r.text != c.text || r.files+r.documents != c.files {
			t.Errorf("%s: %+v, %v; want %d bytes and %d files", c.body, r, err, c.text, c.files)
		}
	}
}

func TestEstimate(t *testing.T) {
	t.Parallel()
	thousand := `{"model":"m","prompt":"` + strings.Repeat("a", 1000) + `","messages":[]`
	picture := `,"input":[{"type":"input_image"},{"type":"input_file"}]`
	known := learnedOf("m", 20, 2, 70)
	for _, c := range []struct {
		name    string
		counts  bool
		body    string
		learned *LearnedEstimates
		want    string
	}{
		{"no maximum", true, thousand + `}`, nil, "input:300,output:500"},
		{"a byte is a token", true, `{"model":"m","prompt":"a"}`, nil, "input:1,output:500"},
		{"files", true, thousand + picture + `}`, nil, "input:5900,output:500"},
		{"max_tokens", true, thousand + `,"max_tokens":4096}`, nil, "input:300,output:4096"},
		{"max_completion_tokens", true, thousand + `,"max_completion_tokens":7}`, nil, "input:300,output:7"},
		{"max_output_tokens", true, thousand + `,"max_output_tokens":0}`, nil, "input:300,output:0"},
		{"two maxima", true, thousand + `,"max_tokens":9,"max_completion_tokens":700}`, nil, "input:300,output:700"},
		{"choices", true, thousand + `,"max_tokens":9,"n":3}`, nil, "input:300,output:27"},
		{"the best of choices", true, thousand + `,"max_tokens":9,"n":3,"best_of":5}`, nil, "input:300,output:45"},
		{"choices without a maximum", true, thousand + `,"n":3}`, nil, "input:300,output:1500"},
		{"a high maximum that does not count", false, thousand + `,"max_tokens":4096}`, nil, "input:300,output:500"},
		{"a low maximum that does not count", false, thousand + `,"max_tokens":40}`, nil, "input:300,output:40"},
		{"too much for any budget", true, thousand + `,"max_tokens":1e30,"n":1e30}`, nil, "input:300,output:2147483647"},
		{"a model that is known", true, thousand + `}`, known, "input:200,output:70"},
		{"a model that is known, with files", true, thousand + picture + `}`, known, "input:5800,output:70"},
		{"a model that is known, with a maximum", true, thousand + `,"max_tokens":4096}`, known, "input:200,output:4096"},
		{"a model that is known, with a maximum that does not count", false, thousand + `,"max_tokens":4096}`, known, "input:200,output:70"},
		{"another model is known", true, thousand + `}`, learnedOf("other", 20, 2, 70), "input:300,output:500"},
		{"too few answers", true, thousand + `}`, learnedOf("m", 9, 2, 70), "input:300,output:500"},
	} {
		config := valid(OpenAI)
		config.CountMaxTokens = c.counts
		units, err := Estimate(config, "", []byte(c.body), c.learned)
		if err != nil || units.String() != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, units, err, c.want)
		}
	}
	config := valid(Anthropic)
	units, err := Estimate(config, "", []byte(`{"model":"m","max_tokens":4096,"messages":[{"role":"user","content":"Hello"}]}`), nil)
	if err != nil || units.String() != "input:6,output:500" {
		t.Errorf("anthropic: %s, %v", units, err)
	}
}
