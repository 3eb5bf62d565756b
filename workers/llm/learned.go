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

// Learned is what the answers of each model have taught about the next ones: how many input tokens a byte of text has, and how many output
// tokens an answer has. Each is the mean of the last answers plus their standard deviation. Fewer than 10 answers teach nothing.
//
// Up to 50 answers count alike. Of more, the mean is exponentially weighted: each new answer counts for a fiftieth, so that the weights
// have the mean age of the last 100 answers. The first 50 models that answer are told apart. All others count as one, and so does a model
// with the name "other".
//
// A Learned is in memory. A dispatcher stores it beside its bucket and shares it with other processes: see [Learned.Adopt].
//
// The zero value is ready, and nil knows nothing. A Learned is safe for concurrent use: a worker and the programs that enqueue for it may
// share one.
type Learned struct {
	mu     sync.Mutex
	models map[string]*lesson
	others lesson
}

// otherModels is the name of all models that are not told apart.
const otherModels = "other"

// note takes in an answer that told its usage. An answer to a request with files teaches no input: its tokens are of text and files together.
func (l *Learned) note(r *request, used shaper.Units) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of(r.model, true)
	if r.files == 0 && r.text > 0 {
		of.perByte.add(float64(used[shaper.UnitInput]) / float64(r.text))
	}
	of.output.add(float64(used[shaper.UnitOutput]) / float64(r.choices))
}

// nameOf is the model, or the name of the others if it is not told apart.
func (l *Learned) nameOf(model string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of(model, true) == &l.others {
		return otherModels
	}
	return model
}

// usual returns how many input tokens a byte and how many output tokens a choice usually have. What is not known stays as given.
func (l *Learned) usual(model string, perByte, output float64) (usualPerByte, usualOutput float64) {
	if l == nil {
		return perByte, output
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of(model, false)
	return of.perByte.or(perByte), of.output.or(output)
}

// of returns the lesson on a model. A new model gets its own if it is to be changed and there is room. It requires that l.mu is held.
func (l *Learned) of(model string, change bool) *lesson {
	if known := l.models[model]; known != nil {
		return known
	}
	switch {
	case len(l.models) >= learnedModels || model == otherModels:
		return &l.others
	case !change:
		return &lesson{}
	case l.models == nil:
		l.models = map[string]*lesson{}
	}
	l.models[model] = &lesson{}
	return l.models[model]
}

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
