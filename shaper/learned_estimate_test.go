package shaper

import (
	"strings"
	"testing"
)

func TestLearnedEstimatesValidate(t *testing.T) {
	t.Parallel()
	many := LearnedEstimates{}
	for i := range MaxLearnedEstimates {
		many[strings.Repeat("m", i)] = LearnedEstimate{Answers: 1}
	}
	for name, c := range map[string]struct {
		estimates LearnedEstimates
		want      string // in the error; "" none
	}{
		"none":           {nil, ""},
		"as many as fit": {many, ""},
		"the longest":    {LearnedEstimates{strings.Repeat("m", MaxSubjectBytes): {Answers: 1, Text: strings.Repeat("x", MaxLearnedEstimateBytes)}}, ""},
		"a long subject": {LearnedEstimates{strings.Repeat("m", MaxSubjectBytes+1): {Answers: 1, Text: ""}}, "at most 200 bytes"},
		"a long text":    {LearnedEstimates{"m": {Answers: 1, Text: strings.Repeat("x", MaxLearnedEstimateBytes+1)}}, `learned estimate of "m": want a text of at most 400 bytes`},
		"of no answer":   {LearnedEstimates{"m": {Answers: 0, Text: ""}}, `learned estimate of "m": 0 answers`},
	} {
		if err := c.estimates.Validate(); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	many["another"] = LearnedEstimate{Answers: 1}
	if err := many.Validate(); err == nil || !strings.Contains(err.Error(), "52 learned estimates") {
		t.Errorf("one too many: %v", err)
	}
}
