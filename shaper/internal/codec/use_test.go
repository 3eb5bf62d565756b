package codec

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

func TestUseText(t *testing.T) {
	t.Parallel()
	must.Equal(t, UseText(nil, 0), "", "a job that used no model")
	for model, want := range map[string]string{
		"gpt-4o-mini": "gpt-4o-mini 1 2", "": " 1 2", "*": "%2A 1 2", "meta/llama 3@x": "meta%2Fllama+3%40x 1 2", "\n\x00é": "%0A%00%C3%A9 1 2",
		strings.Repeat("a", 201):       strings.Repeat("a", 200) + " 1 2",
		"aa" + strings.Repeat("é", 50): "aa" + strings.Repeat("%C3%A9", 33) + " 1 2",
	} {
		must.Equal(t, UseText(&shaper.Use{Model: model, Input: 1, Output: 2}, 3), want, "%q", model)
	}
	must.Equal(t, UseText(&shaper.Use{Model: "m", Input: -1, Output: -2}, 0), "m 0 0", "less than nothing")
}

// What a model that a fallback answered with, and what calls were charged beyond their tokens, are written and read as.
func TestUsedInPlaceOfAnother(t *testing.T) {
	text := UseText(&shaper.Use{Model: "claude>4", Input: 1, Output: 2, Asked: "gpt>5"}, 1000)
	must.Equal(t, text, "claude%3E4>gpt%3E5 1 2 1000", "settle.lua is told")
	for field, want := range map[string]Used{
		"abcdefg claude%3E4>gpt%3E5 fx": {Caller: "abcdefg", Model: "claude>4", Asked: "gpt>5", Levels: LevelsFlows, Flow: "x", Calls: 3, Input: 4, Output: 5, Charged: 9},
		"* claude%3E4>gpt%3E5 *":        {Model: "claude>4", Asked: "gpt>5", OtherParts: true, Calls: 3, Input: 4, Output: 5, Charged: 9},
	} {
		if got, ok := ReadUsed(field, "3 4 5"); !ok || got != want {
			t.Errorf("%s is read as %+v", field, got)
		}
		want.Calls, want.Input, want.Output, want.Charged = 0, 0, 0, -7
		if got, ok := ReadUsed("+"+field, "-7"); !ok || got != want {
			t.Errorf("+%s is read as %+v", field, got)
		}
	}
	if _, ok := ReadUsed("+a m f", "3 4 5"); ok {
		t.Error("three numbers are read where one is")
	}
}

// What Redis holds is read as it was written, whatever is in the names.
func FuzzUsed(f *testing.F) {
	f.Add("gpt-4o", "team", "a b", 2)
	f.Add("*", "", "*", 1)
	f.Add("a/b é", "3:a", "", 2)
	f.Add(strings.Repeat("é", 100), "", "", 0)
	f.Fuzz(func(t *testing.T, model, group, flow string, levels int) {
		words := strings.Split(UseText(&shaper.Use{Model: model, Input: 1, Output: 2}, 3), " ")
		if len(words) != 3 || len(words[0]) > 200 || strings.ContainsAny(words[0], "@*\n") {
			t.Fatalf("%q", words)
		}
		want := Used{Caller: "abcdefg", Levels: LevelsNone, Calls: 3, Input: 4, Output: 5, Charged: 9}
		field := want.Caller + " " + words[0] + " "
		switch levels {
		case LevelsFlows:
			field, want.Levels, want.Flow = field+"f"+flow, levels, flow
		case LevelsGroups:
			field, want.Levels, want.Group, want.Flow = field+"g"+FlowPath(group, flow), levels, group, flow
		}
		got, ok := ReadUsed(field, "3 4 5")
		want.Model = got.Model
		if !ok || got != want || !utf8.ValidString(got.Model) {
			t.Fatalf("%q is read as %+v", field, got)
		}
		if utf8.ValidString(model) && len(words[0]) < 198 && got.Model != model {
			t.Fatalf("%q became %q", model, got.Model)
		}
	})
}

func TestReadUsed(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]Used{
		"* gpt-4o *": {Model: "gpt-4o", OtherParts: true, Calls: 1, Input: 2, Output: 3, Charged: 5},
		"* * *":      {OtherParts: true, OtherModels: true, Calls: 1, Input: 2, Output: 3, Charged: 5},
		" m f*":      {Model: "m", Levels: LevelsFlows, Flow: "*", Calls: 1, Input: 2, Output: 3, Charged: 5},
	} {
		if got, ok := ReadUsed(field, "1 2 3"); !ok || got != want {
			t.Errorf("%q: %+v, want %+v", field, got, want)
		}
	}
	for field, value := range map[string]string{"": "1 2 3", "a": "1 2 3", "a b": "1 2 3", "a % ": "1 2 3", "a b ": "1 2", " b ": "1 2 x"} {
		if got, ok := ReadUsed(field, value); ok {
			t.Errorf("%q %q is read as %+v", field, value, got)
		}
	}
}

func TestUseDays(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 2, 27, 23, 30, 0, 0, time.FixedZone("", -3600)) // 28 February by UTC
	must.Equal(t, fmt.Sprint(UseDays(at, at.AddDate(0, 0, 2))), "[20260228 20260301 20260302]", "days")
	if got := UseDays(at, at.AddDate(0, 0, -1)); len(got) != 0 {
		t.Errorf("days %v", got)
	}
}
