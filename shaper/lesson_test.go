package shaper

import (
	"strings"
	"testing"
)

func TestLessonsValidate(t *testing.T) {
	t.Parallel()
	many := Lessons{}
	for i := range MaxLessons {
		many[strings.Repeat("m", i)] = Lesson{Answers: 1}
	}
	for name, c := range map[string]struct {
		lessons Lessons
		want    string // in the error; "" none
	}{
		"none":           {nil, ""},
		"as many as fit": {many, ""},
		"the longest":    {Lessons{strings.Repeat("m", MaxSubjectBytes): {Answers: 1, Text: strings.Repeat("x", MaxLessonBytes)}}, ""},
		"a long subject": {Lessons{strings.Repeat("m", MaxSubjectBytes+1): {Answers: 1, Text: ""}}, "at most 200 bytes"},
		"a long text":    {Lessons{"m": {Answers: 1, Text: strings.Repeat("x", MaxLessonBytes+1)}}, `on "m": want a text of at most 400 bytes`},
		"of no answer":   {Lessons{"m": {Answers: 0, Text: ""}}, `on "m": 0 answers`},
	} {
		if err := c.lessons.Validate(); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	many["another"] = Lesson{Answers: 1}
	if err := many.Validate(); err == nil || !strings.Contains(err.Error(), "52 lessons") {
		t.Errorf("one too many: %v", err)
	}
}
