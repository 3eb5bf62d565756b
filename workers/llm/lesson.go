package llm

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/shaper"
)

// lesson is what is known of one model, or of all others.
type lesson struct {
	perByte average
	kinds   [inputs]use

	stored int64 // from how many answers the one beside the bucket is, as last seen; noRoom: it cannot be there
}

const noRoom = math.MaxInt64

// use is what requests of a kind use: input that is not in the body, of each part, and output. Each answer is in output.
type use struct{ unseen, output average }

// answers is from how many answers it is.
func (l *lesson) answers() (n int64) {
	for i := range l.kinds {
		n += l.kinds[i].output.n
	}
	return n
}

// Adopt takes in what is stored beside the bucket. Of two lessons on a model the one from more answers counts: this one is replaced by the
// stored one, or [Learned.News] returns it. So processes that learn side by side agree on what one of them has learned, and what the
// others have learned since they last agreed is dropped.
//
// A process that delivers calls Adopt when it starts and then every few seconds, and stores the news. One that only enqueues calls Adopt.
func (l *Learned) Adopt(stored shaper.Lessons) {
	l.mu.Lock()
	defer l.mu.Unlock()
	absent := int64(0)
	if len(stored) >= shaper.MaxLessons {
		absent = noRoom
	}
	l.others.stored = absent
	for _, own := range l.models {
		own.stored = absent
	}
	for model, theirs := range stored {
		read, ok := readLesson(theirs)
		own := l.of(model, ok)
		if own == &l.others && model != otherModels { // there is no room here
			continue
		}
		own.stored = theirs.Answers
		if ok && theirs.Answers > own.answers() {
			own.perByte, own.kinds = read.perByte, read.kinds
		}
	}
}

// News returns what is known from more answers than what Adopt has last seen.
func (l *Learned) News() shaper.Lessons {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := shaper.Lessons{}
	add := func(model string, own *lesson) {
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

// write is the lesson as it is stored: of a byte, and then of each kind, how many answers, and each number as mean and deviation.
func (l *lesson) write() shaper.Lesson {
	var b strings.Builder
	write := func(a *average) { fmt.Fprintf(&b, " %.6g %.6g", a.mean, math.Sqrt(a.variance)) }
	fmt.Fprint(&b, l.perByte.n)
	write(&l.perByte)
	for i := range l.kinds {
		kind := &l.kinds[i]
		fmt.Fprint(&b, " ", kind.output.n)
		write(&kind.unseen)
		write(&kind.output)
	}
	return shaper.Lesson{Answers: l.answers(), Text: b.String()}
}

// readLesson reads what write has written. ok is false of anything else, such as what a newer program has written.
func readLesson(stored shaper.Lesson) (l lesson, ok bool) {
	words := strings.Fields(stored.Text)
	next := func(most float64) (x float64) {
		if ok = ok && len(words) > 0; ok {
			var err error
			x, err = strconv.ParseFloat(words[0], 64)
			ok = err == nil && x >= 0 && x <= most // not so of NaN
			words = words[1:]
		}
		return x
	}
	read := func(a *average) {
		a.mean = next(shaper.MaxBudgetAmount)
		deviation := next(shaper.MaxBudgetAmount)
		a.variance = deviation * deviation
	}
	ok = true
	l.perByte.n = int64(next(mostAnswers))
	read(&l.perByte)
	for i := range l.kinds {
		kind := &l.kinds[i]
		kind.output.n = int64(next(mostAnswers))
		kind.unseen.n = kind.output.n
		if input(i) == inputText {
			kind.unseen.n = l.perByte.n
		}
		read(&kind.unseen)
		read(&kind.output)
	}
	return l, ok && l.answers() == stored.Answers && stored.Answers > 0
}

// mostAnswers is more than any lesson is from: a float has it exactly.
const mostAnswers = 1 << 53
