package lua

import (
	"strings"
	"testing"
)

func TestUnusedFunctionsAreLeftOut(t *testing.T) {
	t.Parallel()
	const body = `local a = { ONE = 1 }
local function twice(n) return 2 * n end
-- Says why.
function a.used(n)
  return twice(n)
end
-- a.unused calls itself, and dead.
function a.unused(n)
  return a.unused(n) + dead(n)
end
local function dead(n)
  if n > 0 then
    return n
  end
end
function a.in_comment() return 0 end
a.other = twice
return a
`
	const want = `local a = (function()
local a = { ONE = 1 }
local function twice(n) return 2 * n end
-- Says why.
function a.used(n)
  return twice(n)
end
a.other = twice
return a
end)()
`
	kept := assembly{pieces: withoutUnused([]piece{{"a", body}}, "-- See in_comment.\nreturn a.used(1)\n")}
	if got := kept.text(); got != want {
		t.Errorf("the pieces are %s", got)
	}
}

// Each function of a piece is used by at least one script.
func TestPiecesHaveNoDeadFunction(t *testing.T) {
	t.Parallel()
	a := assembly{files: files}
	used := map[string]bool{}
	for _, script := range All() {
		if _, err := a.add(script.Name()); err != nil {
			t.Fatal(err)
		}
		text := script.Text()
		for line := range strings.Lines(text) {
			if start := functionStart.FindStringSubmatch(line); start != nil {
				used[start[0]] = true
			}
		}
	}
	for _, p := range a.pieces {
		for _, part := range partsOf(p.body) {
			for line := range strings.Lines(part.text) {
				if start := functionStart.FindStringSubmatch(line); start != nil && part.function != "" && !used[start[0]] {
					t.Errorf("no script uses %s of %s", start[0], p.name)
				}
			}
		}
	}
}
