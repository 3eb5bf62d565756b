package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// bucketsFile has n buckets, each with flows and a table of its own.
func bucketsFile(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[buckets]]\nname = \"b%d\"\nrate = \"10/s\"\ncapacity = 500\nwebhook.url = \"https://example.com/%d\"\n[buckets.flow]\nkey = \"job\"\nmax_in_flight = 3\ncapacity = 50\n", i, i)
	}
	return b.String()
}

func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{500, 1000, 2000} {
		files := files(map[string]string{"config.toml": bucketsFile(n)})
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				c := must.Get(Load(Options{ReadFile: files}))(b)
				c.Warnings()
			}
		})
	}
}

// A file costs as much as it has buckets: four times as many, four times as much. What is counted is memory, which does not depend on
// how busy the machine is.
func TestReadingIsLinear(t *testing.T) {
	cost := func(n int) float64 {
		files := files(map[string]string{"config.toml": bucketsFile(n)})
		return testing.AllocsPerRun(1, func() {
			c := must.Get(Load(Options{ReadFile: files}))(t)
			c.Warnings()
		})
	}
	if one, four := cost(200), cost(800); four > 4.5*one {
		t.Errorf("200 buckets take %.0f allocations, 800 take %.0f", one, four)
	}
}
