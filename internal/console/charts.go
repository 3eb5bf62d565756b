package console

import (
	"fmt"
	"strings"
)

// Size of a sparkline, in units of its picture.
const (
	sparkWidth  = 120
	sparkHeight = 24
)

// spark returns a line through numbers, as the path of an SVG: from the bottom at 0 to the top at the highest, or at most if that is more.
func spark(numbers []int64, most float64) string {
	for _, n := range numbers {
		most = max(most, float64(n))
	}
	if len(numbers) < 2 || most == 0 { //nolint:mnd // a line has two ends
		return fmt.Sprintf("M0 %d H%d", sparkHeight-1, sparkWidth)
	}
	var path strings.Builder
	for i, n := range numbers {
		x := float64(i) * sparkWidth / float64(len(numbers)-1)
		y := 1 + (1-float64(n)/most)*(sparkHeight-2)
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f ", command, x, y)
	}
	return strings.TrimSpace(path.String())
}

// bars returns the columns of a chart: for each number the position and height of its column, in a picture of the given height.
func bars(numbers []int64, height float64) []bar {
	most := int64(1)
	for _, n := range numbers {
		most = max(most, n)
	}
	columns := make([]bar, len(numbers))
	for i, n := range numbers {
		h := float64(n) / float64(most) * height
		columns[i] = bar{i, fmt.Sprintf("%.1f", height-h), fmt.Sprintf("%.1f", h), n}
	}
	return columns
}

type bar struct {
	X      int
	Y, H   string
	Number int64
}

// age labels a past time: this many seconds ago.
type age struct {
	Ago    int
	Number int64
}

// ages are the numbers of five seconds each, the latest first.
func ages(numbers []int64) []age {
	const each = 5
	all := make([]age, len(numbers))
	for i, n := range numbers {
		all[len(numbers)-1-i] = age{each * (len(numbers) - 1 - i), n}
	}
	return all
}
