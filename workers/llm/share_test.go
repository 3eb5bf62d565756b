package llm

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// sent is a request of a caller to a model.
func sent(caller, model string) *request {
	return &request{model: model, sentBy: sender{caller: caller}, content: content{text: 100}, choices: 1}
}

// The memory of responses is shared: a caller that fills it forgets its own oldest ones, and never those of others.
func TestChargesAreShared(t *testing.T) {
	t.Parallel()
	l := &LearnedEstimates{}
	l.begins("of-quiet", "quiet", &request{})
	for i := range 3 * rememberedIDs {
		l.begins(fmt.Sprint("resp_", i), "loud", &request{})
	}
	must.Equal(t, len(l.begun.byID), rememberedIDs/2+1, "ids are remembered: want half, and the one of another caller")
	if r, isFirst := l.ends("of-quiet", "quiet"); r == nil || !isFirst {
		t.Error("one caller makes the process forget a response of another one")
	}
	if r, isFirst := l.ends("of-quiet", "quiet"); r != nil || isFirst {
		t.Error("it has ended twice")
	}
	newest := fmt.Sprint("resp_", 3*rememberedIDs-10)
	if r, _ := l.ends(newest, "loud"); r == nil {
		t.Error("a new one has gone")
	}
	if r, isFirst := l.ends("resp_1", "loud"); r != nil || !isFirst {
		t.Error("an old one of the caller is still there")
	}
	before := len(l.begun.byID)
	l.begins(strings.Repeat("x", maxID+1), "loud", &request{})
	must.Equal(t, len(l.begun.byID), before, "a long id is remembered")
}

// Whoever remembers what: there are never more ids than the bound, each is of one caller, and the newest one is always there.
func TestChargesStayBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l LearnedEstimates
		callers := rapid.IntRange(1, 12_000).Draw(t, "callers")
		for i := range rapid.IntRange(9_000, 25_000).Draw(t, "ids") {
			l.begins(fmt.Sprint(i), fmt.Sprint(i*7%callers), &request{})
			if _, there := l.begun.byID[fmt.Sprint(i)]; !there || len(l.begun.byID) > rememberedIDs {
				t.Fatalf("%d ids, the newest is there: %t", len(l.begun.byID), there)
			}
		}
		sum := 0
		for _, ids := range l.begun.ids {
			sum += len(ids)
		}
		if sum != len(l.begun.byID) {
			t.Fatalf("%d ids by caller, %d in all", sum, len(l.begun.byID))
		}
	})
}

// A caller that names many models leaves others some to learn of, in this process and in those that share what it learned.
func TestLearnedModelsAreShared(t *testing.T) {
	t.Parallel()
	l, used := &LearnedEstimates{}, shaper.Units{shaper.UnitInput: 25, shaper.UnitOutput: 40}
	for i := range 200 {
		l.note(sent("loud", fmt.Sprint("made-up-", i)), used)
		l.refuses(sent("loud", fmt.Sprint("stream_options", i)), time.Now()) // an API that answers with the name in its error
	}
	must.Equal(t, len(l.models), learnedModels/2, "one caller has of %d models", learnedModels)
	if l.refusesUsage("gpt-4o", time.Now()) {
		t.Error("one caller has a stream of a model that nobody has asked yet report no usage")
	}
	for range learnedLeast {
		l.note(sent("quiet", "gpt-4o"), used)
	}
	if e := l.usual("gpt-4o", inputText, ofText); e.output != 40 {
		t.Errorf("of the model of another caller is learned %+v", e)
	}
	must.Equal(t, l.nameOf("gpt-4o-mini", "quiet"), "gpt-4o-mini", "another model of it counts as")
	stored := maps.Clone(l.News())
	second := &LearnedEstimates{}
	second.Adopt(stored)
	for i := range 200 {
		second.note(sent("loud", fmt.Sprint("another-", i)), used)
	}
	if n := len(second.models); n > learnedModels/2+3 {
		t.Errorf("in a second process one caller has %d models", n)
	}
	must.Equal(t, second.nameOf("o3", "third"), "o3", "the model of a third caller counts as there")
}

// A model that the settings do not list has no row of its own, whoever names it.
func TestUnlistedModelsAreNoRows(t *testing.T) {
	t.Parallel()
	unlisted := strings.Replace(chatAnswer, "{", `{"model":"made-up-by-the-answer",`, 1)
	config := apiOf(t, OpenAI, answers(unlisted))
	config.Models = []string{"m", "o3*"}
	w := workerOf(t, config)
	for what, body := range map[string]string{
		"made up":     strings.Replace(chat(""), `"model":"m"`, `"model":"made-up-by-the-client"`, 1),
		"none":        strings.Replace(chat(""), `"model":"m",`, "", 1),
		"unreadable":  "{",
		"of the path": chat(""),
	} {
		path := "/v1/chat/completions"
		if what == "of the path" {
			path = "/openai/deployments/made-up/chat/completions"
		}
		_, outcome := ask(t, w, path, body)
		if outcome.Use == nil || outcome.Use.Model != otherModels {
			t.Errorf("%s: %+v", what, outcome.Use)
		}
	}
	if _, outcome := ask(t, w, "/v1/chat/completions", chat("")); outcome.Use == nil || outcome.Use.Model != "m" {
		t.Errorf("a listed one: %+v", outcome.Use)
	}
	for model := range w.learned.models {
		if model != "m" && model != unknownModel {
			t.Errorf("it learns of %q", model)
		}
	}
}
