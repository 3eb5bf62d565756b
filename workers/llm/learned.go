package llm

import (
	"math"
	"sync"

	"github.com/tundish-io/tundish/shaper"
)

// Bounds of what is learned.
const (
	learnedModels = 50  // that are told apart
	learnedLast   = 100 // answers that count
	learnedLeast  = 10  // answers before which nothing is known
)

// Learned is what the answers of each model have taught about the next ones: how many input tokens a byte of text has, and how many output
// tokens an answer has. Each is the mean of the last 100 answers plus their standard deviation. Fewer than 10 answers teach nothing. The
// first 50 models that answer are told apart. All others count as one.
//
// The zero value is ready, and nil knows nothing. A Learned is safe for concurrent use: a worker and the programs that enqueue for it may
// share one.
//
// A Learned is in memory only. It is not stored beside its bucket yet, so that each process learns for itself, and anew after a start.
type Learned struct {
	mu     sync.Mutex
	models map[string]*lessons
	others lessons
}

// lessons are those of one model.
type lessons struct{ perByte, output window }

// window are the last numbers of a kind.
type window struct {
	last  []float64 // at most learnedLast
	next  int       // is replaced next, once there are as many
	usual float64   // their mean and one deviation
}

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

// otherModels is the name of all models that are not told apart.
const otherModels = "other"

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

// of returns the lessons of a model. A new model gets its own if they are to be changed and there is room. It requires that l.mu is held.
func (l *Learned) of(model string, change bool) *lessons {
	if known := l.models[model]; known != nil {
		return known
	}
	switch {
	case len(l.models) >= learnedModels:
		return &l.others
	case !change:
		return &lessons{}
	case l.models == nil:
		l.models = map[string]*lessons{}
	}
	l.models[model] = &lessons{}
	return l.models[model]
}

func (w *window) add(n float64) {
	if len(w.last) < learnedLast {
		w.last = append(w.last, n)
	} else {
		w.last[w.next] = n
		w.next = (w.next + 1) % learnedLast
	}
	var sum, squares float64
	for _, n := range w.last {
		sum += n
	}
	mean := sum / float64(len(w.last))
	for _, n := range w.last {
		squares += (n - mean) * (n - mean)
	}
	w.usual = mean + math.Sqrt(squares/float64(len(w.last)))
}

func (w *window) or(unknown float64) float64 {
	if len(w.last) < learnedLeast {
		return unknown
	}
	return w.usual
}
