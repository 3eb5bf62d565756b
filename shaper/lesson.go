package shaper

import "fmt"

// Bounds of learned estimates.
const (
	MaxLessons      = 51 // per bucket: 50 subjects, plus one for all others. A caller holds at most as many as are free
	MaxSubjectBytes = 200
	MaxLessonBytes  = 400
)

// Lessons are the estimates that a bucket's workers have learned from responses, by subject: the worker llm learns how many tokens requests to each
// model use. Redis keeps them with the bucket for 31 days, so all processes share them.
type Lessons map[string]Lesson

// Lesson is one learned estimate.
type Lesson struct {
	Answers int64  // how many responses it is based on. Of two estimates for a subject, Redis keeps the one with more
	Text    string // in the worker's own format
	Caller  string // the mark of the caller whose job was the first on the subject, "" none (see [CallerMark]): the estimate counts towards its share
}

// Validate returns the first fault, or nil.
func (l Lessons) Validate() error {
	if len(l) > MaxLessons {
		return fmt.Errorf("%d lessons: want at most %d of a bucket", len(l), MaxLessons)
	}
	for subject, lesson := range l {
		switch {
		case len(subject) > MaxSubjectBytes:
			return fmt.Errorf("lesson on %.20q…: want a subject of at most %d bytes", subject, MaxSubjectBytes)
		case lesson.Answers < 1:
			return fmt.Errorf("lesson on %q: %d answers: want at least 1", subject, lesson.Answers)
		case len(lesson.Text) > MaxLessonBytes:
			return fmt.Errorf("lesson on %q: want a text of at most %d bytes", subject, MaxLessonBytes)
		}
	}
	return nil
}
