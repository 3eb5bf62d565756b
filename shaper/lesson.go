package shaper

import "fmt"

// Bounds of lessons.
const (
	MaxLessons      = 51 // of a bucket: on 50 subjects, and on all others. A caller has no more than it leaves free
	MaxSubjectBytes = 200
	MaxLessonBytes  = 400
)

// Lessons are what the workers of a bucket have learned from the answers of its downstream, by subject: the worker llm learns how many tokens
// the requests to each model use. Redis keeps them beside the bucket for 31 days, so that all processes know what one of them has learned.
type Lessons map[string]Lesson

// Lesson is one of [Lessons].
type Lesson struct {
	Answers int64  // from how many answers it was learned. Of two lessons on a subject, Redis keeps the one from more answers
	Text    string // of the worker's own form
	Caller  string // the mark of the caller whose job was the first on the subject, "" none (see [CallerMark]): its share is counted by it
}

// Validate reports the first fault.
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
