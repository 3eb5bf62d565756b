package bounds_test

import (
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/bounds"
	"github.com/tundish-io/tundish/internal/must"
)

// Whatever can grow has a bound that is listed, and the list has nothing else.
func TestEveryStructureHasABound(t *testing.T) {
	t.Parallel()
	known := []string{bounds.Configured, bounds.Call, bounds.Fixed}
	for i := range bounds.All {
		known = append(known, bounds.All[i].Name)
	}
	for what, c := range map[string]struct {
		found  []string
		listed map[string]string
	}{"bounds.Structures": {structures(t), bounds.Structures}, "bounds.RedisKeys": {redisKeys(t), bounds.RedisKeys}} {
		for _, name := range c.found {
			switch by := c.listed[name]; {
			case by == "":
				t.Errorf("%q keeps what it is given, and %s does not say what bounds it: bound it, share the bound among callers, and add both to bounds.All", name, what)
			case !slices.Contains(known, by):
				t.Errorf("%q is bounded by %q, which bounds.All does not have", name, by)
			}
		}
		for name := range c.listed {
			if !slices.Contains(c.found, name) {
				t.Errorf("%s has %q, which is not there any more", what, name)
			}
		}
	}
}

// A new structure is found, whatever it is made of.
func TestANewStructureIsFound(t *testing.T) {
	t.Parallel()
	file := must.Get(parser.ParseFile(token.NewFileSet(), "new.go", `package new
type a struct {
	byName        map[string]int
	byTwo, nested []map[string]func(map[int]int)
	cache         *lru.Cache[string, int]
	queue         atomic.Pointer[map[string]bool]
	many          sync.Map
	one           func(map[string]int)
}
type b map[string]int
var c struct{ seen map[string]bool }
var d map[string]bool
var table = map[string]bool{"x": true}
`, 0))(t)
	want := "p a.byName, p a.byTwo, p a.nested, p a.cache, p a.queue, p a.many, p b, p c.seen, p d"
	must.Equal(t, strings.Join(structuresOf("p", file), ", "), want, "found")
}

// The numbers are those of the code.
func TestBoundsAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	for i := range bounds.All {
		b := &bounds.All[i]
		if b.What == "" || b.Of == "" || b.Share == "" || b.Full == "" || b.Where == "" {
			t.Errorf("%s: something is not said: %+v", b.Name, b)
		}
		file, constant, ok := strings.Cut(b.Where, ": ")
		if !ok {
			if b.Most > 0 {
				t.Errorf("%s: where is the %d?", b.Name, b.Most)
			}
			continue
		}
		text := must.Get(os.ReadFile(root + "/" + file))(t)
		found := regexp.MustCompile(`(?m)^.*\b` + constant + `\b *[:=] *\{? *([0-9_]+)(?: *<< *(\d+))?`).FindSubmatch(text)
		if found == nil {
			t.Errorf("%s: %s has no number %s", b.Name, file, constant)
			continue
		}
		n, _ := strconv.ParseInt(strings.ReplaceAll(string(found[1]), "_", ""), 10, 64)
		shift, _ := strconv.Atoi(string(found[2]))
		if n<<shift != b.Most {
			t.Errorf("%s: the list says %d, and %s of %s is %d", b.Name, b.Most, constant, file, n<<shift)
		}
	}
}

// The table of the page is made of the list.
func TestThePageIsNotStale(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(root + "/docs/bounds.md"))(t)
	if !strings.Contains(string(text), bounds.Head+bounds.Table()) {
		t.Error("the table of docs/bounds.md is stale: run go run ./scripts/operations")
	}
}
