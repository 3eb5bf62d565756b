package llm

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// noteAnswers notes answers of a model.
func noteAnswers(l *LearnedEstimates, model string, times int, output int64) {
	for range times {
		l.note(&request{model: model, content: content{text: 100}, choices: 1}, shaper.Units{shaper.UnitInput: 25, shaper.UnitOutput: output})
	}
}

// redis does with estimates what lua/store_learned_estimates.lua does.
func redis(stored, news shaper.LearnedEstimates) {
	for subject, modelEstimate := range news {
		known, there := stored[subject]
		if modelEstimate.Answers > known.Answers && (there || len(stored) < shaper.MaxLearnedEstimates) {
			stored[subject] = modelEstimate
		}
	}
}

// What one process has learned another one knows, also the next one of its bucket, and goes on from there.
func TestLearnedEstimatesAreShared(t *testing.T) {
	t.Parallel()
	stored := shaper.LearnedEstimates{}
	first, second := &LearnedEstimates{}, &LearnedEstimates{}
	for i := range 60 {
		noteAnswers(first, "m", 1, int64(400+i))
	}
	redis(stored, first.News())
	second.Adopt(stored)
	if err := stored.Validate(); err != nil || len(stored) != 1 || stored["m"].Answers != 60 {
		t.Fatalf("stored is %v: %v", stored, err)
	}
	want, of := first.estimateOf("m"), second.estimateOf("m")
	wantUse, use := want.kinds[inputText], of.kinds[inputText]
	for _, c := range []struct{ got, want float64 }{
		{use.output.mean, wantUse.output.mean}, {use.output.variance, wantUse.output.variance}, {of.perByte.mean, want.perByte.mean}, {of.perByte.variance, want.perByte.variance},
	} {
		if math.Abs(c.got-c.want) > 1e-4*c.want {
			t.Errorf("%g was adopted of %g", c.got, c.want)
		}
	}
	if use.output.n != 60 || of.perByte.n != 60 {
		t.Errorf("it is from %d and %d answers", use.output.n, of.perByte.n)
	}
	if news := second.News(); len(news) != 0 {
		t.Errorf("what was adopted is news: %v", news)
	}
	noteAnswers(second, "m", 1, 1000)
	if news := second.News(); news["m"].Answers != 61 {
		t.Errorf("after another answer the news is %v", news)
	}
}

// Processes that learn side by side, and start anew, never make what is stored less, and each knows at least as much as is stored.
func TestLearnedEstimatesOfManyProcesses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		stored := shaper.LearnedEstimates{}
		processes := []*LearnedEstimates{{}, {}, {}}
		models := []string{"a", "b", otherModels}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			n := rapid.IntRange(0, len(processes)-1).Draw(t, "process")
			switch p := processes[n]; rapid.SampledFrom([]string{"learn", "exchange", "restart"}).Draw(t, "step") {
			case "learn":
				noteAnswers(p, rapid.SampledFrom(models).Draw(t, "model"), rapid.IntRange(1, 30).Draw(t, "answers"), rapid.Int64Range(0, 1000).Draw(t, "output"))
			case "restart":
				processes[n] = &LearnedEstimates{}
			default:
				before := maps.Clone(stored)
				p.Adopt(maps.Clone(stored))
				redis(stored, p.News())
				for model, modelEstimate := range stored {
					if modelEstimate.Answers < before[model].Answers || p.estimateOf(model).answers() != modelEstimate.Answers {
						t.Fatalf("model %s: %d answers were stored, then %d, and the process has %d", model, before[model].Answers, modelEstimate.Answers, p.estimateOf(model).answers())
					}
				}
				p.Adopt(stored)
				if news := p.News(); len(news) != 0 {
					t.Fatalf("after an exchange there is news: %v", news)
				}
			}
		}
	})
}

// Redis keeps 50 models and the others. What finds no room there is no news every time, and what finds none here changes nothing.
func TestLearnedEstimatesWithoutRoom(t *testing.T) {
	t.Parallel()
	stored := shaper.LearnedEstimates{}
	first, second := &LearnedEstimates{}, &LearnedEstimates{}
	for i := range 60 {
		noteAnswers(first, fmt.Sprint("m", i), 10, 100)
		noteAnswers(second, fmt.Sprint("n", i), 10, 900)
	}
	redis(stored, first.News())
	if err := stored.Validate(); err != nil || len(stored) != shaper.MaxLearnedEstimates {
		t.Fatalf("%d are stored: %v", len(stored), err)
	}
	second.Adopt(stored)
	if news := second.News(); len(news) != 0 {
		t.Errorf("there is no room, and news: %v", news)
	}
	must.Equal(t, second.usual("n1", inputText, ofText).output, 900, "n1 has")
	if output := second.usual("m1", inputText, ofText).output; output != 900 || len(second.models) != 50 {
		t.Errorf("m1, one of the others, has %g; %d models are told apart", output, len(second.models))
	}
	second.Adopt(nil) // Redis has lost all
	must.Equal(t, len(second.News()), 51, "estimates are written again")
}

// A text that this program cannot read is left alone: a newer one may have written it.
func TestReadModelEstimate(t *testing.T) {
	t.Parallel()
	good := shaper.LearnedEstimate{Answers: 12, Text: "3 0.25 0.01 393 7.5"}
	if l, ok := readModelEstimate(good); !ok || l.write() != good {
		t.Errorf("%+v, %t", l, ok)
	}
	if l, ok := readModelEstimate(shaper.LearnedEstimate{Answers: 12, Text: good.Text + " 8 and more"}); !ok || l.write() != good {
		t.Errorf("with more behind it: %+v, %t", l, ok)
	}
	whole := shaper.LearnedEstimate{Answers: 15, Text: "3 0.25 0.01 393 7.5 2 1 0 0 0 0 0 0 0 0 0 0 11 21000 400.5 120 3"}
	if l, ok := readModelEstimate(whole); !ok || l.write() != whole || l.kinds[inputText].output.n != 4 || l.kinds[inputSearches].unseen.n != 11 {
		t.Errorf("of several kinds: %+v, %t", l, ok)
	}
	if l, ok := readModelEstimate(shaper.LearnedEstimate{Answers: 12, Text: whole.Text + "x"}); !ok || l.write() != good {
		t.Errorf("what is behind it is wrong: %+v, %t", l, ok)
	}
	for _, text := range []string{"", "x", "3 0.25 0.01 393", "-1 0.25 0.01 393 7.5", "3 NaN 0.01 393 7.5", "3 0.25 0.01 +Inf 7.5", "3 0.25 0.01 393 -7.5", "3 0.25 0.01 1e300 7.5"} {
		l := &LearnedEstimates{}
		l.Adopt(shaper.LearnedEstimates{"m": {Answers: 100, Text: text}})
		must.Equal(t, l.usual("m", inputText, ofText).output, 500, "%q changed the estimate", text)
		noteAnswers(l, "m", 20, 7)
		l.Adopt(shaper.LearnedEstimates{"m": {Answers: 100, Text: text}})
		if output := l.usual("m", inputText, ofText).output; output != 7 || len(l.News()) != 0 {
			t.Errorf("%q: %g is known, and news %v", text, output, l.News())
		}
	}
	long := average{mostAnswers / 8, math.MaxInt32 + 0.123456, 1e18 / 3}
	of := modelEstimate{perByte: long}
	for i := range of.kinds {
		of.kinds[i] = use{long, long}
	}
	if err := (shaper.LearnedEstimates{"m": of.write()}).Validate(); err != nil {
		t.Error(err)
	}
}
