package llm

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/shaper"
)

// What is usual is the weighted mean of the answers and their weighted deviation. The weights say how old the answers are.
func TestLearnedIsMeanAndDeviation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		given := rapid.SliceOfN(rapid.Int64Range(0, 1_000_000), 0, 250).Draw(t, "output")
		l := &Learned{}
		for _, n := range given {
			l.note(&request{model: "m", text: 1000, choices: 2}, shaper.Units{shaper.UnitInput: n, shaper.UnitOutput: n})
		}
		perByte, output := l.usual("m", 0.3, 500)
		if len(given) < 10 {
			if perByte != 0.3 || output != 500 {
				t.Fatalf("%d answers have taught %g and %g", len(given), perByte, output)
			}
			return
		}
		weights := make([]float64, len(given))
		for i := range given {
			weights[i] = max(1/float64(i+1), 2.0/101)
			for before := range i {
				weights[before] *= 1 - weights[i]
			}
		}
		var mean, variance float64
		for i, n := range given {
			mean += weights[i] * float64(n)
		}
		for i, n := range given {
			variance += weights[i] * (float64(n) - mean) * (float64(n) - mean)
		}
		if want := mean + math.Sqrt(variance); math.Abs(output-want/2) > 1 || math.Abs(perByte-want/1000) > 0.01 {
			t.Fatalf("%g tokens a byte and %g tokens, want %g and %g", perByte, output, want/1000, want/2)
		}
	})
}

// When answers become others, a hundred of these are most of what is known, and five hundred are all of it.
func TestLearnedForgets(t *testing.T) {
	t.Parallel()
	l := &Learned{}
	answer := func(times int, n int64) float64 {
		for range times {
			l.note(&request{model: "m", text: 1, choices: 1}, shaper.Units{shaper.UnitOutput: n})
		}
		of := l.of("m", false).output
		return of.mean
	}
	answer(100_000, 1000)
	if mean := answer(100, 100); mean > 100+900*0.15 {
		t.Errorf("after a hundred others the mean is %g", mean)
	}
	if mean := answer(400, 100); mean > 101 {
		t.Errorf("after five hundred others the mean is %g", mean)
	}
}

func TestLearned(t *testing.T) {
	t.Parallel()
	one := func(model string, text, files int64) *request {
		return &request{model: model, text: text, files: files, choices: 1}
	}
	used := shaper.Units{shaper.UnitInput: 200, shaper.UnitOutput: 40}
	for _, c := range []struct {
		name            string
		r               *request
		perByte, output float64
	}{
		{"text", one("m", 100, 0), 2, 40},
		{"text and a file", one("m", 100, 1), 0.3, 40},
		{"no text", one("m", 0, 0), 0.3, 40},
		{"another model", one("n", 100, 0), 0.3, 500},
	} {
		l := &Learned{}
		for range 10 {
			l.note(c.r, used)
		}
		if perByte, output := l.usual("m", 0.3, 500); perByte != c.perByte || output != c.output {
			t.Errorf("%s: %g and %g, want %g and %g", c.name, perByte, output, c.perByte, c.output)
		}
	}
	var none *Learned
	none.note(one("m", 1, 0), used)
	if perByte, output := none.usual("m", 0.3, 500); perByte != 0.3 || output != 500 {
		t.Errorf("nil knows %g and %g", perByte, output)
	}
}

// The first 50 models are told apart, and the others count as one.
func TestLearnedOthers(t *testing.T) {
	t.Parallel()
	l := &Learned{}
	for i := range 60 {
		l.usual(fmt.Sprintf("asked-%d", i), 0, 0) // a question alone takes no place
	}
	for i := range 60 {
		for range 10 {
			l.note(&request{model: fmt.Sprintf("m%d", i), text: 1, choices: 1}, shaper.Units{shaper.UnitInput: int64(i), shaper.UnitOutput: int64(i)})
		}
	}
	if len(l.models) != 50 {
		t.Errorf("%d models are told apart", len(l.models))
	}
	if perByte, output := l.usual("m7", 0.3, 500); perByte != 7 || output != 7 {
		t.Errorf("m7: %g and %g", perByte, output)
	}
	_, fifty := l.usual("m50", 0.3, 500)
	_, unknown := l.usual("m999", 0.3, 500)
	if _, other := l.usual("other", 0.3, 500); other != unknown || fifty != unknown || fifty < 54.5 || fifty > 61 {
		t.Errorf("the others: %g and %g", fifty, unknown)
	}
}

func TestLearnedConcurrently(t *testing.T) {
	t.Parallel()
	l := &Learned{}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 200 {
				l.note(&request{model: fmt.Sprint(i % 3), text: 10, choices: 1}, shaper.Units{shaper.UnitInput: 5, shaper.UnitOutput: 50})
				l.usual(fmt.Sprint(i%5), 0.3, 500)
			}
		})
	}
	group.Wait()
	if perByte, output := l.usual("2", 0.3, 500); math.Abs(perByte-0.5) > 1e-9 || math.Abs(output-50) > 1e-9 {
		t.Errorf("%g and %g", perByte, output)
	}
}
