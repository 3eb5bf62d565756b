package llm

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// ofText is what the tests expect of plain text, where nothing else is known.
var ofText = expectation{perByte: 0.3, output: 500}

// What is usual is the weighted mean of the answers and their weighted deviation. The weights say how old the answers are.
func TestLearnedIsMeanAndDeviation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		given := rapid.SliceOfN(rapid.Int64Range(0, 1000), 0, 250).Draw(t, "output")
		l := &LearnedEstimates{}
		for _, n := range given {
			l.note(&request{model: "m", content: content{text: 1000}, choices: 2}, shaper.Units{shaper.UnitInput: n, shaper.UnitOutput: n})
		}
		e := l.usual("m", inputText, ofText)
		perByte, output := e.perByte, e.output
		if len(given) < 10 {
			if perByte != 0.3 || output != 500 {
				t.Fatalf("after %d answers the estimates are %g and %g", len(given), perByte, output)
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
		if want := mean + math.Sqrt(variance); math.Abs(output-want/2) > 1e-6 || math.Abs(perByte-want/1000) > 1e-6 || math.Abs(e.unseen) > 0 {
			t.Fatalf("%g tokens a byte and %g tokens, want %g and %g", perByte, output, want/1000, want/2)
		}
	})
}

// When answers become others, a hundred of these are most of what is known, and five hundred are all of it.
func TestLearnedForgets(t *testing.T) {
	t.Parallel()
	l := &LearnedEstimates{}
	answer := func(times int, n int64) float64 {
		for range times {
			l.note(&request{model: "m", content: content{text: 1}, choices: 1}, shaper.Units{shaper.UnitOutput: n})
		}
		return l.estimateOf("m").kinds[inputText].output.mean
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
	one := func(model string, of content, kind input) *request {
		return &request{model: model, content: of, choices: 1, input: kind}
	}
	used := shaper.Units{shaper.UnitInput: 80, shaper.UnitOutput: 40}
	for _, c := range []struct {
		name string
		r    *request
		want expectation // of a text
	}{
		{"text", one("m", content{text: 100}, 0), expectation{0.8, 0, 40}},
		{"more tokens than bytes", one("m", content{text: 10}, 0), expectation{1, 70, 40}},
		{"text and an image", one("m", content{text: 100, files: 1}, 0), expectation{0.3, 0, 40}},
		{"no text", one("m", content{}, 0), expectation{0.3, 0, 40}},
		{"another model", one("n", content{text: 100}, 0), ofText},
		{"documents", one("m", content{text: 100, documents: 1}, inputDocuments), ofText},
		{"references", one("m", content{text: 100}, inputReferences), ofText},
		{"searches", one("m", content{text: 100}, inputSearches), ofText},
		{"what asks no model", &request{model: "m", asks: asksNothing, content: content{text: 100}, choices: 1}, ofText},
	} {
		l := &LearnedEstimates{}
		for range 10 {
			l.note(c.r, used)
		}
		must.Equal(t, l.usual("m", inputText, ofText), c.want, "%s", c.name)
	}
	var none *LearnedEstimates
	none.note(one("m", content{text: 1}, 0), used)
	must.Equal(t, none.usual("m", inputText, ofText), ofText, "nil knows")
}

// Each kind of input has its own estimate. What it has beside its text is counted for each part, and of output a kind that is not known has that of texts.
func TestLearnedByKind(t *testing.T) {
	t.Parallel()
	l := &LearnedEstimates{}
	note := func(kind input, documents, used, output int64) {
		for range 20 {
			l.note(&request{model: "m", content: content{text: 1000, documents: documents}, choices: 1, input: kind},
				shaper.Units{shaper.UnitInput: used, shaper.UnitOutput: output})
		}
	}
	unknown := expectation{perByte: 0.3, unseen: 4000, output: 500}
	note(inputText, 0, 250, 100)
	note(inputDocuments, 4, 250+4*20_000, 200)
	note(inputSearches, 0, 250+10_000, 300)
	for kind, want := range map[input]expectation{
		inputText: {0.25, 0, 100}, inputDocuments: {0.25, 20_000, 200}, inputReferences: {0.25, 4000, 100}, inputSearches: {0.25, 10_000, 300},
	} {
		if got := l.usual("m", kind, unknown); math.Abs(got.perByte-want.perByte) > 1e-9 || math.Abs(got.unseen-want.unseen) > 1e-6 || math.Abs(got.output-want.output) > 1e-6 {
			t.Errorf("kind %d: %+v, want %+v", kind, got, want)
		}
	}
}

// The first 50 models are told apart, and the others count as one.
func TestLearnedOthers(t *testing.T) {
	t.Parallel()
	l := &LearnedEstimates{}
	for i := range 60 {
		l.usual(fmt.Sprintf("asked-%d", i), inputText, ofText) // a question alone takes no place
	}
	for i := range 60 {
		for range 10 {
			l.note(&request{model: fmt.Sprintf("m%d", i), content: content{text: 1}, choices: 1}, shaper.Units{shaper.UnitInput: int64(i), shaper.UnitOutput: int64(i)})
		}
	}
	must.Equal(t, len(l.models), 50, "models are told apart")
	must.Equal(t, l.usual("m7", inputText, ofText), (expectation{1, 6, 7}), "m7")
	output := func(model string) float64 { return l.usual(model, inputText, ofText).output }
	fifty, unknown := output("m50"), output("m999")
	if other := output("other"); other != unknown || fifty != unknown || fifty < 54.5 || fifty > 61 {
		t.Errorf("the others: %g and %g", fifty, unknown)
	}
}

func TestLearnedConcurrently(t *testing.T) {
	t.Parallel()
	l := &LearnedEstimates{}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 200 {
				l.note(&request{model: fmt.Sprint(i % 3), content: content{text: 10}, choices: 1}, shaper.Units{shaper.UnitInput: 5, shaper.UnitOutput: 50})
				l.usual(fmt.Sprint(i%5), inputText, ofText)
			}
		})
	}
	group.Wait()
	if e := l.usual("2", inputText, ofText); math.Abs(e.perByte-0.5) > 1e-9 || math.Abs(e.output-50) > 1e-9 {
		t.Errorf("%+v", e)
	}
}
