package llm

import (
	"math"
	"sync"

	"github.com/tundish-io/tundish/shaper"
)

// Bounds of the learned estimates.
const (
	learnedModels = shaper.MaxLearnedEstimates - 1 // with an estimate of their own
	learnedLast   = 100                            // responses that count, about
	learnedLeast  = 10                             // responses before an estimate is used
)

// LearnedEstimates holds the learned estimates of each model: input tokens for each byte of text, input tokens outside of the text, and output tokens of a
// response. Each is the mean of the last responses plus one standard deviation. With fewer than 10 responses there is no estimate.
//
// Requests are of four kinds, see [Estimate]: plain text, documents, references, searches. Each kind has estimates of its own, so the input that a web
// search adds is not expected of plain text. A byte of text is one token at most.
//
// Up to 50 responses count alike. After that the mean is exponentially weighted: each new response weighs about 2 %, so the mean age of the weights
// equals the mean age of the last 100 responses. The first 50 models that respond have estimates of their own. One caller alone can name half of
// them, and two callers
// that name as many as they can name one third each. All other models share one estimate, and so does a model with the name "other".
//
// A Learned is in memory. A dispatcher stores it with its bucket and shares it with other processes: see [Learned.Adopt]. Which requests are still at
// work, and which models refuse to report the usage of streams, is not shared.
//
// The zero value is ready, and nil has no estimates. A Learned is safe for concurrent use: a worker and the programs that enqueue for it may share one.
type LearnedEstimates struct {
	mu       sync.Mutex
	models   map[string]*modelEstimate
	others   modelEstimate
	begun    begun
	refusals refusals
}

// otherModels is the name of all models without an estimate of their own.
const otherModels = "other"

// unknownModel is the name of the model if neither the request nor the response names one.
const unknownModel = "unknown"

// mostPerByte is the highest number of tokens for a byte of text: tokenizers begin with bytes and merge them. Tokens above it are counted as input
// outside of the text.
const mostPerByte = 1

// note adds the usage of a response to the estimates. A response to a request with images adds no input: its tokens are of text and images together.
func (l *LearnedEstimates) note(r *request, used shaper.Units) {
	if l == nil || r.asks == asksNothing {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of, text, input := l.make(r.subject(), r.sentBy.caller), float64(r.text), float64(used[shaper.UnitInput])
	kind := &of.kinds[r.input]
	switch {
	case r.input != inputText:
		seen := text*of.perByte.or(tokensPerByte) + float64(r.files*tokensPerFile)
		kind.unseen.add(max(input-seen, 0) / float64(r.unseen()))
	case r.files == 0 && r.text > 0:
		seen := min(input, text*mostPerByte)
		of.perByte.add(seen / text)
		kind.unseen.add(input - seen)
	}
	kind.output.add(float64(used[shaper.UnitOutput]) / float64(r.choices))
}

// nameOf returns the model, or [otherModels] if the model has no estimate of its own. caller is the caller that names it.
func (l *LearnedEstimates) nameOf(model, caller string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.make(model, caller) == &l.others {
		return otherModels
	}
	return model
}

// expectation is the usual usage of a request: input tokens of a byte, input tokens of a part outside of the body, and output tokens of a choice.
type expectation struct{ perByte, unseen, output float64 }

// usual returns the usual usage of requests of a kind. Values without a learned estimate stay as given.
func (l *LearnedEstimates) usual(model string, kind input, e expectation) expectation {
	if l == nil {
		return e
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.estimateOf(model)
	output := of.kinds[inputText].output.or(e.output)
	return expectation{of.perByte.or(e.perByte), of.kinds[kind].unseen.or(e.unseen), of.kinds[kind].output.or(output)}
}

// estimateOf returns the estimate of a model, or an empty one if the model has none and there is room for it. It requires that l.mu is held.
func (l *LearnedEstimates) estimateOf(model string) *modelEstimate {
	switch known := l.models[model]; {
	case known != nil:
		return known
	case len(l.models) >= learnedModels || model == otherModels:
		return &l.others
	}
	return &modelEstimate{}
}

// make returns the estimate of a model. A new model gets its own if there is room and the caller's share allows it; see hasRoom. caller may be "". It
// requires that l.mu is held.
func (l *LearnedEstimates) make(model, caller string) *modelEstimate {
	if l.models[model] == nil && model != otherModels && hasRoom(l.models, func(m *modelEstimate) string { return m.caller }, learnedModels, caller) {
		if l.models == nil {
			l.models = map[string]*modelEstimate{}
		}
		l.models[model] = &modelEstimate{caller: caller}
	}
	if known := l.models[model]; known != nil {
		return known
	}
	return &l.others
}

// hasRoom reports whether a caller may add an entry, where most is the bound of all: a caller has no more entries than it leaves free. "" is no caller
// and has no share.
func hasRoom[T any](all map[string]T, callerOf func(T) string, most int, caller string) bool {
	free, held := most-len(all), 0
	for _, one := range all {
		if caller != "" && callerOf(one) == caller {
			held++
		}
	}
	return mayHave(free, held)
}

// mayHave reports whether a caller with held entries may add one: it has no more than it leaves free, and a caller without entries gets one.
func mayHave(free, held int) bool { return free > 0 && (held == 0 || held+1 <= free) }

// average follows numbers.
type average struct {
	n              int64
	mean, variance float64
}

// leastWeight is the least weight of a new number. With it, the weights have the same mean age as the last learnedLast numbers.
const leastWeight = 2.0 / (learnedLast + 1)

func (a *average) add(x float64) {
	a.n++
	weight := max(1/float64(a.n), leastWeight)
	off := x - a.mean
	a.mean += weight * off
	a.variance = (1 - weight) * (a.variance + weight*off*off)
}

// or returns the mean plus one standard deviation, or unknown after fewer than learnedLeast numbers.
func (a *average) or(unknown float64) float64 {
	if a.n < learnedLeast {
		return unknown
	}
	return a.mean + math.Sqrt(a.variance)
}
