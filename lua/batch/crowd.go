package batch

// memory is how slowly a [Crowd] forgets: by that part of a difference at a time.
const memory = 64

// Crowd knows how many ask for the same thing, so that a batch can be as large as is worth
// its round trip: with few of them small, as they would wait for each other, and with many
// large, as those who are missing come in a moment. Those who are here lately are the most
// there were at a time, less a 64th of the difference to those there are with each batch.
//
// The zero value is an empty crowd. It is not safe for concurrent use.
type Crowd struct{ here, lately int }

// Come notes that so many wait for an answer now.
func (c *Crowd) Come(n int) {
	c.here += n
	c.lately = max(c.lately, c.here)
}

// Go notes that so many do not wait any more, though they were not answered.
func (c *Crowd) Go(n int) { c.here -= n }

// Answered notes that a batch of so many is done.
func (c *Crowd) Answered(n int) {
	c.here -= n
	c.lately -= (c.lately - c.here + memory - 1) / memory
}

// IsPart reports whether n are parts/whole of the crowd, or more.
func (c *Crowd) IsPart(n, parts, whole int) bool { return n*whole >= c.lately*parts }
