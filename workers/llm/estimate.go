package llm

import (
	"math"

	"github.com/tundish-io/tundish/shaper"
)

// The expected tokens where nothing else is known.
const (
	tokensPerByte = 0.3
	tokensPerFile = 1600
)

// Estimate returns the tokens that a request to a path of the API reserves, by its body.
//
// Input is 0.3 tokens for each byte of text, or the learned estimate of the model, and 1,600 for each image. Input that is not in the body, such as a
// PDF, an earlier response or the results of a search, is c.ExpectedInput, or the learned estimate for requests of that kind. Output is the maximum that
// the request names if c counts it, otherwise the expected output, at most that maximum. A request for several choices, or with several prompts,
// reserves that many times. learned may be nil.
//
// It returns the error of [Config.CheckJob] for such a body.
func Estimate(c Config, path string, body []byte, learned *LearnedEstimates) (shaper.Units, error) {
	r, err := c.read("", path, body)
	if err != nil {
		return nil, err
	}
	return c.estimate(r, learned), nil
}

func (c Config) estimate(r *request, learned *LearnedEstimates) shaper.Units {
	if r.asks == asksNothing {
		return shaper.Units{shaper.UnitInput: 0, shaper.UnitOutput: 0}
	}
	e := learned.usual(r.subject(), r.input, c.unknown(r.input))
	output := wholeTokens(e.output * float64(r.choices))
	switch {
	case r.vectors:
		output = 0
	case r.maximum == unbounded:
	case c.CountMaxTokens:
		output = r.maximum
	default:
		output = min(output, r.maximum)
	}
	unseen := e.unseen * float64(max(r.unseen(), 1))
	input := wholeTokens(float64(r.text)*e.perByte+unseen) + r.files*tokensPerFile
	return shaper.Units{shaper.UnitInput: atMost(input), shaper.UnitOutput: output}
}

// unknown returns the configured expectation for a kind of input, for use while there is no learned estimate.
func (c Config) unknown(kind input) expectation {
	e := expectation{perByte: tokensPerByte, output: float64(c.ExpectedOutput)}
	if kind != inputText {
		e.unseen = float64(c.ExpectedInput)
	}
	return e
}

// wholeTokens rounds up to a whole number, within the bounds of a budget.
func wholeTokens(n float64) int64 { return int64(math.Ceil(min(max(n, 0), shaper.MaxBudgetAmount))) }
