package llm

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/shaper"
)

// modelEstimate is the learned estimate of one model, or of all others.
type modelEstimate struct {
	perByte average
	kinds   [inputs]use

	caller string // whose request was the first, by its mark; "" none
	stored int64  // number of responses of the stored estimate, as last seen; noRoom: it cannot be stored
}

const noRoom = math.MaxInt64

// use is the usage of requests of a kind: input outside of the body, of each part, and output. Each response counts in output.
type use struct{ unseen, output average }

// answers returns the number of responses of the estimate.
func (l *modelEstimate) answers() (n int64) {
	for i := range l.kinds {
		n += l.kinds[i].output.n
	}
	return n
}

// Adopt reads the estimates that are stored with the bucket. Of two estimates of a model, the one from more responses wins: Adopt replaces the local
// one, or [Learned.News] returns it. So processes that learn in parallel agree on the estimate of one of them. What the others learned since they last
// agreed is dropped.
//
// A process that delivers calls Adopt when it starts and then every few seconds, and stores the result of News. A process that only enqueues calls
// Adopt.
func (l *LearnedEstimates) Adopt(stored shaper.LearnedEstimates) {
	l.mu.Lock()
	defer l.mu.Unlock()
	absent := func(caller string) int64 {
		if hasRoom(stored, func(l shaper.LearnedEstimate) string { return l.Caller }, shaper.MaxLearnedEstimates, caller) {
			return 0
		}
		return noRoom
	}
	l.others.stored = absent("")
	for _, own := range l.models {
		own.stored = absent(own.caller)
	}
	for model, theirs := range stored {
		read, ok := readModelEstimate(theirs)
		own := l.estimateOf(model)
		if ok {
			own = l.make(model, theirs.Caller)
		}
		if own == &l.others && model != otherModels { // there is no room here
			continue
		}
		own.stored = theirs.Answers
		if ok && theirs.Answers > own.answers() {
			own.perByte, own.kinds = read.perByte, read.kinds
		}
	}
}

// News returns the estimates that are from more responses than the stored ones that Adopt last saw.
func (l *LearnedEstimates) News() shaper.LearnedEstimates {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := shaper.LearnedEstimates{}
	add := func(model string, own *modelEstimate) {
		if own.answers() > own.stored {
			news[model] = own.write()
		}
	}
	for model, own := range l.models {
		add(model, own)
	}
	add(otherModels, &l.others)
	return news
}

// write formats the estimate for Redis: the number of responses for tokens of a byte, those tokens, and the output of texts, each as mean and deviation.
// Where there is more, it adds the input of texts outside of the body and, for each other kind, the number of responses, that input, and the output.
func (l *modelEstimate) write() shaper.LearnedEstimate {
	var b strings.Builder
	write := func(a *average) { fmt.Fprintf(&b, " %.6g %.6g", a.mean, math.Sqrt(a.variance)) }
	texts := &l.kinds[inputText]
	fmt.Fprint(&b, l.perByte.n)
	write(&l.perByte)
	write(&texts.output)
	if l.answers() > texts.output.n || texts.unseen.mean > 0 {
		write(&texts.unseen)
		for i := range l.kinds[1:] {
			kind := &l.kinds[1+i]
			fmt.Fprint(&b, " ", kind.output.n)
			write(&kind.unseen)
			write(&kind.output)
		}
	}
	return shaper.LearnedEstimate{Answers: l.answers(), Text: b.String(), Caller: l.caller}
}

// readModelEstimate reads the format of write. ok is false for anything else, such as the format of a newer program.
func readModelEstimate(stored shaper.LearnedEstimate) (l modelEstimate, ok bool) {
	r := &estimateReader{words: strings.Fields(stored.Text)}
	texts := &l.kinds[inputText]
	l.perByte.n = r.count()
	r.average(&l.perByte)
	r.average(&texts.output)
	if r.failed || stored.Answers < 1 {
		return modelEstimate{}, false
	}
	texts.output.n = stored.Answers
	more := l
	r.average(&more.kinds[inputText].unseen)
	for i := range more.kinds[1:] {
		kind := &more.kinds[1+i]
		kind.output.n = r.count()
		kind.unseen.n = kind.output.n
		r.average(&kind.unseen)
		r.average(&kind.output)
		more.kinds[inputText].output.n -= kind.output.n
	}
	if !r.failed && more.kinds[inputText].output.n >= 0 {
		l = more
	}
	l.kinds[inputText].unseen.n = l.perByte.n
	return l, true
}

// estimateReader reads the numbers of a stored estimate.
type estimateReader struct {
	words  []string
	failed bool
}

func (r *estimateReader) number(most float64) float64 {
	if len(r.words) == 0 {
		r.failed = true
		return 0
	}
	x, err := strconv.ParseFloat(r.words[0], 64)
	r.words = r.words[1:]
	r.failed = r.failed || err != nil || !(x >= 0 && x <= most) // neither is NaN
	return x
}

func (r *estimateReader) count() int64 { return int64(r.number(mostAnswers)) }

func (r *estimateReader) average(a *average) {
	a.mean = r.number(shaper.MaxBudgetAmount)
	deviation := r.number(shaper.MaxBudgetAmount)
	a.variance = deviation * deviation
}

// mostAnswers is above any number of responses, and a float represents it exactly.
const mostAnswers = 1 << 53
