package llm

import (
	"math"

	"github.com/tundish-io/tundish/shaper"
)

// How many tokens are expected where nothing else is known.
const (
	tokensPerByte = 0.3
	tokensPerFile = 1600
)

// Estimate returns what a request reserves, by its body.
//
// Input is 0.3 tokens for each byte of text, or what learned knows of the model, and 1,600 for each image or file. Output is the maximum
// that the request names if c counts it. Else it is the expected output, at most that maximum. A request for several choices reserves that
// many times. learned may be nil.
//
// The error is what [Config.CheckJob] says of such a body.
func Estimate(c Config, body []byte, learned *Learned) (shaper.Units, error) {
	r, err := c.read("", body)
	if err != nil {
		return nil, err
	}
	return c.estimate(r, learned), nil
}

func (c Config) estimate(r *request, learned *Learned) shaper.Units {
	perByte, expected := learned.usual(r.model, tokensPerByte, float64(c.ExpectedOutput))
	output := wholeTokens(expected * float64(r.choices))
	switch {
	case r.maximum == unbounded:
	case c.CountMaxTokens:
		output = r.maximum
	default:
		output = min(output, r.maximum)
	}
	input := wholeTokens(float64(r.text)*perByte) + r.files*tokensPerFile
	return shaper.Units{shaper.UnitInput: atMost(input), shaper.UnitOutput: output}
}

// wholeTokens is the next whole number, within the bounds of a budget.
func wholeTokens(n float64) int64 { return int64(math.Ceil(min(max(n, 0), shaper.MaxBudgetAmount))) }
