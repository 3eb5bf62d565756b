package codec

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// UseKept is the number of days for which the use of models is kept, including today: see lua/lib/use.lua.
const UseKept = 31

const (
	useDay        = "20060102"
	useOther      = "*" // see lua/lib/use.lua
	useMore       = "+" // prefix of a field: the charge of its calls in excess of their tokens
	useAsked      = ">" // between a model and the model that was requested in its place
	maxModelBytes = 200 // of the name of a model, escaped
)

// UseDay names the day of an instant, by UTC.
func UseDay(at time.Time) string { return at.UTC().Format(useDay) }

// ParseUseDay returns the start of the day with that name.
func ParseUseDay(day string) (time.Time, error) { return time.Parse(useDay, day) }

// UseDays names the days from one to another one, both included.
func UseDays(from, to time.Time) []string {
	var days []string
	for last := UseDay(to); ; from = from.AddDate(0, 0, 1) {
		day := UseDay(from)
		if day > last {
			return days
		}
		days = append(days, day)
	}
}

// UseText returns what a job used, as settle.lua takes it after the day: "model input output". The charge in tokens follows if it is not their
// sum. It returns "" if the job used no model.
func UseText(use *shaper.Use, charged int64) string {
	if use == nil {
		return ""
	}
	model, input, output := escapeModel(use.Model), max(use.Input, 0), max(use.Output, 0)
	if use.Asked != "" {
		model += useAsked + escapeModel(use.Asked)
	}
	text := model + " " + strconv.FormatInt(input, 10) + " " + strconv.FormatInt(output, 10)
	if charged = max(charged, 0); charged != input+output {
		text += " " + strconv.FormatInt(charged, 10)
	}
	return text
}

// maxResponseBytes bounds the id of a response.
const maxResponseBytes = 200

// ResponseText returns the response to which a use belongs, as settle.lua takes it: "!kind id model", see lua/lib/responses.lua. It returns ""
// if there is none.
func ResponseText(r *shaper.Response) string {
	if r == nil || r.ID == "" || len(r.ID) > maxResponseBytes {
		return ""
	}
	return "!" + string(r.Role) + " " + url.QueryEscape(r.ID) + " " + escapeModel(r.Model)
}

// escapeModel escapes the name of a model, so that it has no space, *, @ or >. It cuts a name that is too long.
func escapeModel(model string) string {
	escaped := url.QueryEscape(model)
	if len(escaped) <= maxModelBytes {
		return escaped
	}
	const longestEscape = 3 // bytes
	cut := maxModelBytes
	if at := strings.LastIndexByte(escaped[:cut], '%'); at > cut-longestEscape {
		cut = at
	}
	return escaped[:cut]
}

// Used is a field of the use of a day, with its value.
type Used struct {
	Caller               string // its mark, "" without one
	Model                string
	Asked                string // the model that the caller requested, where Model responded in its place
	Levels               int    // 0 in a bucket without flows: see LevelsNone
	Group, Flow          string
	OtherParts           bool // calls of other callers and flows: Caller, Group and Flow are empty
	OtherModels          bool // and of other models: Model is empty too
	Calls, Input, Output int64
	Charged              int64 // tokens. In a field that begins with +, this is added to its row's Charged, and the numbers above are 0
}

// ReadUsed parses a field and its value. ok is false if they cannot be parsed.
func ReadUsed(field, value string) (used Used, ok bool) {
	field, isMore := strings.CutPrefix(field, useMore)
	caller, rest, ok1 := strings.Cut(field, " ")
	model, flow, ok2 := strings.Cut(rest, " ")
	if !ok1 || !ok2 || !used.readNumbers(value, isMore) {
		return used, false
	}
	if model == useOther {
		used.OtherParts, used.OtherModels = true, true
		return used, true
	}
	model, asked, _ := strings.Cut(model, useAsked)
	for _, one := range []struct {
		word string
		to   *string
	}{{model, &used.Model}, {asked, &used.Asked}} {
		name, err := url.QueryUnescape(one.word)
		if err != nil {
			return used, false
		}
		*one.to = strings.ToValidUTF8(name, "\uFFFD") // a name that was cut may end within a character
	}
	if caller == useOther {
		used.OtherParts = true
		return used, true
	}
	used.Caller = caller
	switch {
	case flow == "":
		used.Levels = LevelsNone
	case flow[0] == 'f':
		used.Levels, used.Flow = LevelsFlows, flow[1:]
	default:
		used.Levels = LevelsGroups
		used.Group, used.Flow, _ = SplitPath(flow[1:])
	}
	return used, true
}

// readNumbers reads the value of a field.
func (u *Used) readNumbers(value string, isMore bool) bool {
	to := []*int64{&u.Calls, &u.Input, &u.Output}
	if isMore {
		to = []*int64{&u.Charged}
	}
	numbers := strings.Fields(value)
	if len(numbers) != len(to) {
		return false
	}
	for i, number := range to {
		var err error
		if *number, err = strconv.ParseInt(numbers[i], 10, 64); err != nil {
			return false
		}
	}
	u.Charged += u.Input + u.Output
	return true
}
