package main

import "fmt"

// bar is the least value of a figure; atMost makes it a ceiling. The zero bar judges nothing. A bar lies 25 % below its goal, a ceiling 25 % above, so
// that noise does not miss it.
type bar struct {
	value  float64
	atMost bool
}

func atLeast(goal float64) bar { return bar{value: goal * 3 / 4} }
func atMost(goal float64) bar  { return bar{value: goal * 5 / 4, atMost: true} }

func (b bar) String() string {
	switch {
	case b.value == 0:
		return "no bar"
	case b.atMost:
		return fmt.Sprintf("at most %.3g", b.value)
	}
	return fmt.Sprintf("at least %.3g", b.value)
}

// check prints a line with its ratio, and returns a complaint where the ratio misses the bar.
func (b bar) check(name, figures string, ratio float64) []string {
	fmt.Printf("%-44s %-76s ratio %.2f (%s)\n", name, figures, ratio, b)
	if b.value != 0 && (ratio > b.value) == b.atMost && ratio != b.value {
		return []string{fmt.Sprintf("%s: %.2f, want %s", name, ratio, b)}
	}
	return nil
}
