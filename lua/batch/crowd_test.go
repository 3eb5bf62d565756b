package batch

import "testing"

// A crowd is remembered for a while, and forgotten then, so that those who stay do not
// wait for some who will not come.
func TestCrowdIsForgotten(t *testing.T) {
	t.Parallel()
	var c Crowd
	parts := func(least int) {
		t.Helper()
		if c.IsPart(least-1, 1, 3) || !c.IsPart(least, 1, 3) {
			t.Errorf("a third of %+v is not %d", c, least)
		}
	}
	parts(0)
	c.Come(60)
	c.Come(4)
	parts(22)
	c.Go(1)
	c.Answered(61)
	if c.here != 2 {
		t.Errorf("%d are here, want 2", c.here)
	}
	parts(21) // one batch says little
	for range 300 {
		c.Answered(0)
	}
	parts(1)
	c.Answered(2)
	c.Answered(0)
	parts(0)
}
