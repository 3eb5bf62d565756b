package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

func standard[T any]() T { return defaultOf(reflect.TypeFor[T]()).Interface().(T) }

const referencePath = "reference.toml"

var comment = regexp.MustCompile(`\s+#\s(.*)$`)
var example = regexp.MustCompile(`(?m)^#([a-z\[])`)
var otherDefault = regexp.MustCompile(`default: ("[^"]*"|\[\]|\d+|the limit's number)`)

// asOfTheFirst are the keys of later buckets, but for the tables of their workers.
func asOfTheFirst(path string) bool {
	for later, tables := range map[string][]string{"buckets[1].": {"http.", "callbacks.", "batch."}, "buckets[2].": {"llm."}, "buckets[3].": {"asynq."}} {
		rest, ok := strings.CutPrefix(path, later)
		if ok && !slices.ContainsFunc(tables, func(table string) bool { return strings.HasPrefix(rest, table) }) {
			return true
		}
	}
	return false
}

// TestReference holds the reference to what it says: it is valid, as it is and
// with its examples, has every key, and each has its default unless its comment gives another one.
func TestReference(t *testing.T) {
	t.Parallel()
	data := must.Get(os.ReadFile(referencePath))(t)
	if warnings := mustLoad(t, string(data)).Warnings(); len(warnings) > 0 {
		t.Errorf("warnings: %s", strings.Join(warnings, "\n"))
	}
	data = example.ReplaceAll(data, []byte("$1"))
	c := mustLoad(t, string(data))
	if warnings := c.Warnings(); len(warnings) > 0 {
		t.Errorf("warnings with the examples: %s", strings.Join(warnings, "\n"))
	}
	values := map[string]string{}
	for _, p := range c.printed() {
		values[p.path] = p.Value
	}
	doc, fault := parseDocument(referencePath, data)
	if fault != nil {
		t.Fatal(fault)
	}
	s := defaultSettings()
	s.Keys, s.Limits, s.Buckets = []keySettings{{}}, []admission.Limit{standard[admission.Limit]()}, []Bucket{defaultBucket()}
	s.Buckets[0].Responses = workers.Rules{workers.DefaultRule()}
	s.Pools = []shaper.Pool{standard[shaper.Pool]()}
	flow, group := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
	s.Buckets[0].Flow, s.Buckets[0].Group = &flow, &group
	api, toAPI := defaultBucket(), standard[HTTPSettings]()
	api.Batch, api.BatchFormat = standard[shaper.BatchSettings](), workers.BatchArray
	api.HTTP, api.CallbackTo, s.Hooks = &toAPI, &callbackSettings{}, []hookSettings{{}}
	tasks, toAsynq := defaultBucket(), standard[AsynqSettings]()
	tasks.Asynq = &toAsynq
	model, toModel := defaultBucket(), standard[LLMSettings]()
	model.LLM = &toModel
	s.Buckets = append(s.Buckets, api, model, tasks)
	lines := strings.Split(string(data), "\n")
	there := func(p place) bool { return p.path == "buckets[1].batch" }
	leaves(setting.Keys(reflect.TypeFor[settings]()), reflect.ValueOf(s), place{}, "", there, func(key leaf) {
		if asOfTheFirst(key.path) {
			return
		}
		line, ok := doc.lines[key.path]
		if !ok {
			t.Errorf("%s is missing", key.path)
			return
		}
		note := comment.FindStringSubmatch(lines[line-1])
		if note == nil || note[1] == "" {
			t.Errorf("%s has no comment", key.path)
			return
		}
		value, standard := values[key.path], key.literal()
		other := otherDefault.FindStringSubmatch(note[1])
		switch {
		case strings.HasPrefix(note[1], "required"):
			if !key.value.IsZero() {
				t.Errorf("%s says that it is required, and has the default %s", key.path, standard)
			}
		case other == nil && value != standard:
			t.Errorf("%s is %s, and its comment does not say that the default is %s", key.path, value, standard)
		case other != nil && key.path == "limits[0].burst":
		case other != nil && (other[1] != standard || value == standard):
			t.Errorf("%s is %s and the default %s, but its comment says %s", key.path, value, standard, other[1])
		}
	})
}
