package app

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

func TestFewOf(t *testing.T) {
	t.Parallel()
	many := make([]string, 3000)
	for i := range many {
		many[i] = fmt.Sprint("b", i)
	}
	for n, want := range map[int]string{0: "", 1: "b0", 8: "b0, b1, b2, b3, b4, b5, b6, b7", 9: "b0, b1, b2, b3, b4, b5, b6, b7 and 1 more", 3000: "b0, b1, b2, b3, b4, b5, b6, b7 and 2992 more"} {
		must.Equal(t, fewOf(many[:n]), want, "%d", n)
	}
}
