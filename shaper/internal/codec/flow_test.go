package codec

import (
	"reflect"
	"strings"
	"testing"

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
