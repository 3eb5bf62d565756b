package llm

import (
	"math"
	"sync"

	"github.com/tundish-io/tundish/shaper"
)

// Bounds of what is learned.
const (
	learnedModels = shaper.MaxLessons - 1 // that are told apart
	learnedLast   = 100                   // answers that count, about
	learnedLeast  = 10                    // answers before which nothing is known
)

// Learned is what the answers of each model have taught about the next ones: how many input tokens a byte of text has, how many there are beside
// the text, and how many output tokens an answer has. Each is the mean of the last answers plus their standard deviation. Fewer than 10 answers
// teach nothing.
//
// Requests are of four kinds, see [Estimate]: plain text, documents, references, searches. Each kind teaches of itself only, so that what a web
// search adds is not expected of a text. A byte of text is one token at most.
//
// Up to 50 answers count alike. Of more, the mean is exponentially weighted: each new answer counts for a fiftieth, so that the weights
// have the mean age of the last 100 answers. The first 50 models that answer are told apart, of which one caller alone names half, and two that
// name as many as they can a third each. All others count as one, and so does a model with the name "other".
//
// A Learned is in memory. A dispatcher stores it beside its bucket and shares it with other processes: see [Learned.Adopt]. Which requests are
// still at work, and which models refuse to report the usage of streams, is not shared.
//
// The zero value is ready, and nil knows nothing. A Learned is safe for concurrent use: a worker and the programs that enqueue for it may
// share one.
type Learned struct {
	mu       sync.Mutex
	models   map[string]*lesson
	others   lesson
	begun    begun
	refusals refusals
}

// otherModels is the name of all models that are not told apart.
const otherModels = "other"

// unknownModel is the name of the model of requests that name none, where the response names none either.
const unknownModel = "unknown"

// mostPerByte is how many tokens a byte of text has at most: tokenizers begin with bytes and merge them. What is above that is not of the text.
const mostPerByte = 1

// note takes in an answer that told its usage. An answer to a request with images teaches no input: its tokens are of text and images together.
func (l *Learned) note(r *request, used shaper.Units) {
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

// nameOf is the model, or the name of the others if it is not told apart. caller is who names it.
func (l *Learned) nameOf(model, caller string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.make(model, caller) == &l.others {
		return otherModels
	}
	return model
}

// expectation is what a request usually uses: input tokens of a byte, those of a part that is not in the body, and output tokens of a choice.
type expectation struct{ perByte, unseen, output float64 }

// usual returns what requests of a kind usually use. What is not known stays as given.
func (l *Learned) usual(model string, kind input, e expectation) expectation {
	if l == nil {
		return e
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of(model)
	output := of.kinds[inputText].output.or(e.output)
	return expectation{of.perByte.or(e.perByte), of.kinds[kind].unseen.or(e.unseen), of.kinds[kind].output.or(output)}
}

// of returns the lesson on a model, an empty one of a model that has none and may get one. It requires that l.mu is held.
func (l *Learned) of(model string) *lesson {
	switch known := l.models[model]; {
	case known != nil:
		return known
	case len(l.models) >= learnedModels || model == otherModels:
		return &l.others
	}
	return &lesson{}
}

// make returns the lesson on a model. A new model gets its own if there is room and its caller, "" none, has no more than it leaves free. It requires
// that l.mu is held.
func (l *Learned) make(model, caller string) *lesson {
	if l.models[model] == nil && model != otherModels && hasRoom(l.models, func(m *lesson) string { return m.caller }, learnedModels, caller) {
		if l.models == nil {
			l.models = map[string]*lesson{}
		}
		l.models[model] = &lesson{caller: caller}
	}
	if known := l.models[model]; known != nil {
		return known
	}
	return &l.others
}

// hasRoom reports whether a caller may have another one of at most so many: it has no more than it leaves free. "" is no caller and has no share.
func hasRoom[T any](all map[string]T, callerOf func(T) string, most int, caller string) bool {
	free, held := most-len(all), 0
	for _, one := range all {
		if caller != "" && callerOf(one) == caller {
			held++
		}
	}
	return mayHave(free, held)
}

// mayHave is the rule of shares: a caller has no more than it leaves free, and one that has nothing gets one.
func mayHave(free, held int) bool { return free > 0 && (held == 0 || held+1 <= free) }

// average follows numbers.
type average struct {
	n              int64
	mean, variance float64
}

// leastWeight is that of a new number: with it, the weights of all have the mean age of the last learnedLast numbers.
const leastWeight = 2.0 / (learnedLast + 1)

func (a *average) add(x float64) {
	a.n++
	weight := max(1/float64(a.n), leastWeight)
	off := x - a.mean
	a.mean += weight * off
	a.variance = (1 - weight) * (a.variance + weight*off*off)
}

// or is what is usual: the mean and one deviation.
func (a *average) or(unknown float64) float64 {
	if a.n < learnedLeast {
		return unknown
	}
	return a.mean + math.Sqrt(a.variance)
}
