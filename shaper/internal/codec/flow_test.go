package codec

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func TestParseOwnDelivery(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*shaper.OwnDelivery{
		"":                             nil,
		"-":                            nil,
		`{"by":"anna"}`:                nil,
		"-\n-\n-\n-":                   nil,
		"-\n\"\"\n{}\n[]":              nil,
		"not JSON\n-\n-\n-":            nil, // the note of a pause is not for deliveries
		"-\n\"https://a.example/\"":    {URL: "https://a.example/"},
		"-\n-\n{\"X-A\":\"1\"}\n-":     {Headers: map[string]string{"X-A": "1"}},
		"-\n-\n-\n[\"s1\",\"s2\"]\n{}": {Secrets: []string{"s1", "s2"}}, // and a line of a later version
	} {
		if own, err := ParseOwnDelivery(text); err != nil || !reflect.DeepEqual(own, want) {
			t.Errorf("%q: %#v, %v", text, own, err)
		}
	}
	for _, text := range []string{
		"-\nhunter2", "-\n{\"hunter2\":1}", "-\n-\n[\"hunter2\"]", "-\n-\n{\"X\":{\"hunter2\":1}}", "-\n-\n-\nhunter2", "-\n-\n-\n\"hunter2\"", "-\n-\n-\n[\"hunter2",
		"-\n\n\n",
	} {
		if own, err := ParseOwnDelivery(text); err == nil || own != nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %#v, %v", text, own, err)
		}
	}
}

func TestFlowPaths(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	names := []string{"", "a", "1:", "1:a", ":", "ab", "ü", strings.Repeat("x", 256)}
	for _, group := range names {
		for _, flow := range names {
			path := FlowPath(group, flow)
			if g, f, ok := SplitPath(path); g != group || f != flow || !ok || seen[path] {
				t.Errorf("%q of %q is %q, which is %q of %q (%t); seen %t", flow, group, path, f, g, ok, seen[path])
			}
			seen[path] = true
		}
	}
	for _, path := range []string{"", "a", "2:a", "-1:a", ":a", "x:a"} {
		if _, _, ok := SplitPath(path); ok {
			t.Errorf("%q was taken for a path", path)
		}
	}
}

// The names of what control_flow.lua takes are in its header, and lua/lib/own_settings.lua knows how many are numbers: both are those of
// the tags.
func TestOwnPlacesAreThoseOfTheScript(t *testing.T) {
	t.Parallel()
	script := must.Get(os.ReadFile("../../../lua/control_flow.lua"))(t)
	library := must.Get(os.ReadFile("../../../lua/lib/own_settings.lua"))(t)
	var numbers []string
	next := 0
	for _, s := range ownSettings {
		must.Equal(t, s.Redis, strconv.Itoa(next), "%s has the place, and %d is the next one", s.Path, next)
		next += s.size
		switch {
		case s.size == 2:
			numbers = append(numbers, s.Path+"_count", s.Path+"_per")
		case s.IsNumber():
			numbers = append(numbers, s.Path)
		}
	}
	if !strings.Contains(strings.ReplaceAll(string(script), "\n--          ", " "), "set: "+strings.Join(numbers, ", ")+", then any number of lines") {
		t.Errorf("the header of control_flow.lua does not say that it takes %v", numbers)
	}
	if !strings.Contains(string(library), fmt.Sprintf("NUMBERS = %d,", len(numbers))) || len(numbers) != ownNumbers {
		t.Errorf("%d settings are numbers", len(numbers))
	}
}

// What is given is read as it was written; what is not given is left, and what is zero taken back.
func TestOwnFields(t *testing.T) {
	t.Parallel()
	zero, seven := int64(0), int64(7)
	own := shaper.OwnFlow{
		OwnBounds: shaper.OwnBounds{
			Rate: admission.Rate{Count: 5, Per: time.Minute, Unit: admission.UnitRequests}, Burst: &seven, Capacity: &zero, MaxInFlight: &seven, Weight: &seven,
			Budgets: shaper.Budgets{{Count: 9, Per: time.Minute, Unit: "tokens"}, {Count: 1, Per: time.Hour, Unit: "images"}},
			Quotas:  shaper.Quotas{{Count: 1000, Per: 24 * time.Hour, Unit: admission.UnitRequests}},
		},
		URL: "https://a.example/?a=1&b=\n", Headers: map[string]string{"X-A": "<1>"}, Secrets: []string{},
	}
	given := map[shaper.FlowSetting]bool{}
	for _, name := range shaper.FlowSettingNames() {
		given[name] = true
	}
	fields := OwnFields(&own, given)
	text := strings.Join(fields[:ownNumbers], " ") + " -\n-\n" + strings.Join(fields[ownNumbers:], "\n")
	if got, err := ParseOwnFlow(text); err != nil || !reflect.DeepEqual(got, own) {
		t.Errorf("%q is read as %#v, %v", text, got, err)
	}
	none := OwnFields(&shaper.OwnFlow{OwnBounds: shaper.OwnBounds{Budgets: shaper.Budgets{}, Quotas: shaper.Quotas{}}}, given)
	copy(fields[len(fields)-2:], none[len(none)-2:]) // its budgets and its quotas
	if got, err := ParseOwnFlow(strings.Join(fields[:ownNumbers], " ") + " -\n-\n" + strings.Join(fields[ownNumbers:], "\n")); err != nil || got.Budgets == nil || len(got.Budgets) > 0 || got.Quotas == nil || len(got.Quotas) > 0 {
		t.Errorf("no budget and no quota are read as %v, %v, %v", got.Budgets, got.Quotas, err)
	}
	for name, want := range map[string]string{"rate": "[- -         ]", "weight": "[     -     ]", "headers": "[       -   ]", "budgets": "[         - ]", "quotas": "[          -]"} {
		must.Equal(t, fmt.Sprint(OwnFields(&shaper.OwnFlow{}, map[shaper.FlowSetting]bool{shaper.FlowSetting(name): true})), want, "%s is taken back by", name)
	}
}
