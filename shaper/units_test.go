package shaper_test

import (
	"maps"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// Units are read as they were written, and whatever is read, its text says the same.
func FuzzParseUnits(f *testing.F) {
	for _, text := range []string{"", "input:1200,output:400", "tokens:0", "a:1,a:2", "x", ":1", "a:-1", "a:9999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		units := shaper.ParseUnits(text)
		if again := shaper.ParseUnits(units.String()); !maps.Equal(again, units) {
			t.Errorf("%q is %v, and again %v", text, units, again)
		}
	})
}
