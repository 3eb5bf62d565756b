package llm

import (
	"fmt"
	"math"

	"github.com/tundish-io/tundish/shaper"
)

// lesson is what is known of one model, or of all others.
type lesson struct {
	perByte, output average // each answer is in output

	stored int64 // from how many answers the one beside the bucket is, as last seen; noRoom: it cannot be there
}

const noRoom = math.MaxInt64

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
		if ok && read.output.n > own.output.n {
			own.perByte, own.output = read.perByte, read.output
		}
	}
}

// News returns what is known from more answers than what Adopt has last seen.
func (l *Learned) News() shaper.Lessons {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := shaper.Lessons{}
	add := func(model string, own *lesson) {
		if own.output.n > own.stored {
			news[model] = own.write()
		}
	}
	for model, own := range l.models {
		add(model, own)
	}
	add(otherModels, &l.others)
	return news
}

// write is the lesson as it is stored: input tokens a byte, and output tokens, each as mean and deviation.
func (l *lesson) write() shaper.Lesson {
	return shaper.Lesson{Answers: l.output.n, Text: fmt.Sprintf("%d %.6g %.6g %.6g %.6g",
		l.perByte.n, l.perByte.mean, math.Sqrt(l.perByte.variance), l.output.mean, math.Sqrt(l.output.variance))}
}

// readLesson reads what write has written. ok is false of anything else, such as what a newer program has written.
func readLesson(stored shaper.Lesson) (l lesson, ok bool) {
	var deviations [2]float64
	n, err := fmt.Sscanf(stored.Text, "%d %g %g %g %g", &l.perByte.n, &l.perByte.mean, &deviations[0], &l.output.mean, &deviations[1])
	if err != nil || n != 5 || l.perByte.n < 0 || stored.Answers < 1 {
		return lesson{}, false
	}
	for _, number := range []float64{l.perByte.mean, deviations[0], l.output.mean, deviations[1]} {
		if !(number >= 0 && number <= shaper.MaxBudgetAmount) { // neither is NaN
			return lesson{}, false
		}
	}
	l.output.n = stored.Answers
	l.perByte.variance, l.output.variance = deviations[0]*deviations[0], deviations[1]*deviations[1]
	return l, true
}
