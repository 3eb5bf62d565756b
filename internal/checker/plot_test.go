package checker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/must"
)

func ExamplePlot() {
	arrivals := []int{200, 300, 0, 0, 0, 100, 0, 0, 200, 0, 0, 0}
	departures := []int{0, 100, 100, 100, 100, 100, 100, 100, 100, 0, 0, 0}
	fmt.Print(checker.Plot(arrivals, departures, 5*time.Second, 56, 3))
	// Output:
	//       arrivals, 13.3/s on average
	// 60/s ┤    ▇███
	//      │████████                         ▃███
	//    0 ┤█████████           ▁████        █████
	//       departures, 13.3/s on average
	// 20/s ┤    ▄████████████████████████████████
	//      │    █████████████████████████████████▄
	//    0 ┤    ██████████████████████████████████
	//      └┬───────────┬───────────┬───────────┬────────────┬
	//       0          15s         30s         45s         60s
}

func TestPlotOfNothing(t *testing.T) {
	t.Parallel()
	must.Equal(t, checker.Plot(nil, nil, time.Second, 72, 5), "", "Plot")
	must.Equal(t, checker.Plot([]int{1}, nil, 0, 72, 5), "", "Plot with bins of no length")
}

// An even stream is a full rectangle, however many bins there are.
func TestPlotOfAnEvenStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		even := make([]int, rapid.IntRange(1, 500).Draw(t, "bins"))
		for i := range even {
			even[i] = 50
		}
		width, height := rapid.IntRange(40, 120).Draw(t, "width"), rapid.IntRange(1, 8).Draw(t, "height")
		plot := checker.Plot(nil, even, time.Second, width, height)
		columns := width - len("50/s") - 2
		if got, want := strings.Count(plot, "█"), columns*height; got != want {
			t.Fatalf("%d full blocks, want %d:\n%s", got, want, plot)
		}
	})
}

func TestPlotFitsItsSize(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.IntRange(0, 1_000_000), 1, 300)
		arrivals, departures := counts.Draw(t, "arrivals"), counts.Draw(t, "departures")
		bin := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "bin"))
		width, height := rapid.IntRange(40, 120).Draw(t, "width"), rapid.IntRange(1, 8).Draw(t, "height")
		plot := checker.Plot(arrivals, departures, bin, width, height)
		lines := strings.Split(strings.TrimSuffix(plot, "\n"), "\n")
		if len(lines) != 2*height+4 {
			t.Fatalf("%d lines, want %d:\n%s", len(lines), 2*height+4, plot)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > width {
				t.Fatalf("line of %d columns, want %d:\n%s", n, width, plot)
			}
		}
	})
}
