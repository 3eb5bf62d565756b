package lua

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

type refusedBy string

func (r refusedBy) Error() string { return string(r) }
func (refusedBy) RedisError()     {}

// A part that is too large is halved, items keep their order, and any other error ends it.
func TestPartsAreHalved(t *testing.T) {
	t.Parallel()
	items := make([]int, 100)
	for i := range items {
		items[i] = i
	}
	var done []int
	var sizes []int
	err := InParts(items, 64, func(some []int) error {
		if sizes = append(sizes, len(some)); len(some) > 20 {
			return fmt.Errorf("script x: %w", refusedBy("ERR Protocol error: invalid multibulk length"))
		}
		done = append(done, some...)
		return nil
	})
	if err != nil || !slices.Equal(done, items) || !slices.Equal(sizes, []int{64, 32, 16, 16, 16, 16, 16, 16, 4}) {
		t.Errorf("%v, %v, parts of %v", err, done, sizes)
	}
	if err := InParts(items, 64, func([]int) error { return refusedBy("ERR too many arguments") }); err == nil {
		t.Error("one item that is refused is no error")
	}
	calls, broken := 0, errors.New("broken")
	if err := InParts(items, 64, func([]int) error { calls++; return broken }); !errors.Is(err, broken) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestSizeOfACall(t *testing.T) {
	t.Parallel()
	if err := CheckSize(make([]string, 1000), make([]any, MaxWords-1000)); err != nil {
		t.Error(err)
	}
	if err := CheckSize(make([]string, 1000), make([]any, MaxWords-999)); !IsTooLarge(err) {
		t.Errorf("%v", err)
	}
	for _, other := range []error{nil, errors.New("too many arguments"), refusedBy("ERR max number of clients reached"), refusedBy("OOM command not allowed")} {
		if IsTooLarge(other) {
			t.Errorf("%v is taken for a refusal of the size", other)
		}
	}
}
