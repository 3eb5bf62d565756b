// Package hostile helps to test that untrusted bytes cost no more than they should: JSON that costs a careless reader many times its bytes, and the heap
// that a reader uses. Its test lists all places of the project that read untrusted bytes.
package hostile

import (
	"fmt"
	"iter"
	"runtime"
	"strings"
	"time"
)

// deepest is just below the depth that encoding/json refuses.
const deepest = 9_990

// Values yields JSON values of about n bytes by their kind. Each is whole, but for those whose kind begins with "cut".
func Values(n int) iter.Seq2[string, string] {
	many := func(unit string) string { return strings.Repeat(unit, n/len(unit)) }
	nest := strings.Repeat("[", deepest) + strings.Repeat("]", deepest)
	objects := strings.Repeat(`{"a":`, deepest/2) + "1" + strings.Repeat("}", deepest/2)
	kinds := []struct {
		kind string
		make func() string
	}{
		{"numbers", func() string { return "[" + many("1,") + "1]" }},
		{"empty objects", func() string { return "[" + many("{},") + "{}]" }},
		{"empty lists", func() string { return "[" + many("[],") + "[]]" }},
		{"empty texts", func() string { return "[" + many(`"",`) + `""]` }},
		{"nulls", func() string { return "[" + many("null,") + "null]" }},
		{"objects with a type", func() string { return "[" + many(`{"type":"t"},`) + "{}]" }},
		{"objects with an error", func() string { return "[" + many(`{"error":{}},`) + `{"error":{}}]` }},
		{"nested deep", func() string { return "[" + strings.Repeat(nest+",", n/len(nest)) + "1]" }},
		{"nested deep objects", func() string { return "[" + strings.Repeat(objects+",", n/len(objects)) + "1]" }},
		{"cut nested", func() string { return many("[") }},
		{"cut nested objects", func() string { return many(`{"a":`) }},
		{"escapes", func() string { return `"` + many(`\u0000`) + `"` }},
		{"one text", func() string { return `"` + many("a") + `"` }},
		{"one number", func() string { return many("1") }},
		{"keys", func() string { return keys(n, `"k%07d":1`) }},
		{"escaped keys", func() string { return keys(n, `"\u006b%07d":1`) }},
		{"one key again", func() string { return "{" + many(`"a":1,`) + `"a":1}` }},
		{"spaces", func() string { return "[" + many(" ") + "1]" }},
		{"cut numbers", func() string { return "[" + many("1,") }},
	}
	return func(yield func(kind, value string) bool) {
		for _, k := range kinds {
			if !yield(k.kind, k.make()) {
				return
			}
		}
	}
}

// keys is an object of different names.
func keys(n int, form string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, form, i)
	}
	b.WriteByte('}')
	return b.String()
}

// Factor is the ratio of the sizes of the two bodies whose times are compared.
const Factor = 8

// Growth returns how many times longer the work takes with Factor times the bytes; took is the measured time for the large body. It is Factor if the
// time is linear, and its square if each byte is read again for each other one. It repeats a measurement that is too high, as another program may have
// had the CPU.
func Growth(took time.Duration, small, large func()) (times float64, isLinear bool) {
	const tries, most = 10, 4 * Factor
	of := func(do func()) time.Duration {
		began := time.Now()
		do()
		return max(time.Since(began), time.Microsecond)
	}
	for range tries {
		if times = float64(took) / float64(of(small)); times < most {
			return times, true
		}
		took = min(took, of(large))
	}
	return times, false
}

// Cost is the cost of a piece of work.
type Cost struct {
	Heap int64 // bytes that it allocates from the heap and for its stack, freed ones included: no peak is higher
	Time time.Duration
}

// CostOf does the work and measures it. No other test may run meanwhile.
func CostOf(do func()) Cost {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	do()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	grown := max(int64(after.StackInuse)-int64(before.StackInuse), 0)
	return Cost{Heap: int64(after.TotalAlloc-before.TotalAlloc) + grown, Time: took}
}
