package main

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// The pictures are those that their texts describe, with the numbers that the code has.
func TestPicturesAreNotStale(t *testing.T) {
	t.Chdir("../..")
	must.OK(t, run(true))
}

// A picture in which a reader could not read a label is not drawn.
func TestUnreadableLabelsAreErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"size 200 100 \"t\"\nbox 10 10 60 40 \"much too wide\"":                   "line 2: \"much too wide\" is 90 wide, and its box has room for 52",
		"size 200 100 \"t\"\nbox 10 10 90 20 \"two|lines\"":                       "line 2: \"two|lines\" has 2 lines, and its box is 20 high",
		"size 200 100 \"t\"\ntext 10 40 \"one\"\ntext 20 45 \"two\"":              "line 3: \"two\" covers \"one\"",
		"size 200 100 \"t\"\ntext 190 40 \"outside\"":                             "line 2: \"outside\" leaves the picture: from 190 to 235 of 200",
		"size 200 100 \"t\"\nbox 10 10 60 \"x\"":                                  "line 2: box has 3 numbers",
		"size 200 100 \"t\"\narrow 1 2 3 4 5":                                     "line 2: arrow has 5 numbers",
		"size 200 100 \"t\"\ntext 10 40 pink \"x\"":                               "line 2: \"pink\": want a class",
		"size 200 100 \"t\"\ncircle 1 2 3":                                        "line 2: \"circle\": want size",
		"box 10 10 60 40 \"x\"":                                                   "line 1: the first element, and no other, is the size",
		"size 200 100":                                                            "the size has no title",
		"size 200 100 \"t\"\ntext 10 40 \"{{lua \"downstream\" \"NOT_THERE\"}}\"": "NOT_THERE",
	} {
		_, err := draw(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	drawn, err := draw("size 200 100 \"a < b\"\n# no element\nbox 10 10 120 40 blue \"one|two & three\"\narrow 1 2 3 4 5 6 dashed\n")
	must.OK(t, err)
	for _, part := range []string{"<title>a &lt; b</title>", `class="box blue"`, ">two &amp; three</text>", `points="1,2 3,4 5,6" class="line dashed" marker-end`, "prefers-color-scheme: dark"} {
		if !strings.Contains(string(drawn), part) {
			t.Errorf("the picture lacks %s: %s", part, drawn)
		}
	}
}
