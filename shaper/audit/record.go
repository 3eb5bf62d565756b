package audit

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tundish-io/tundish/shaper"
)

// Outcome is how an operation ended.
type Outcome string

// The outcomes.
const (
	Begun   Outcome = "begun"   // it is under way, or its process died after any part of its changes
	Done    Outcome = "done"    // it changed something
	Nothing Outcome = "nothing" // there was nothing to change
	Refused Outcome = "refused" // it was invalid, or not possible
	Failed  Outcome = "failed"  // it broke off
)

// Record is one operation.
type Record struct {
	ID string `json:"id"`

	// When it began, by the clock of Redis.
	At time.Time `json:"at"`

	Author  string `json:"author"`            // the key, or the user of a command line
	Address string `json:"address,omitempty"` // of the client
	Process string `json:"process"`           // that has carried it out: its program and its host
	Request string `json:"request_id,omitempty"`

	// Its id in openapi.yaml, or `reload`.
	Operation string `json:"operation"`

	// What it changes, by kind: bucket, flow, group, pool, schedule, limit, id.
	Object map[string]string `json:"object,omitempty"`

	Reason string `json:"reason,omitempty"`

	// Further parameters of the operation. Settings, payloads and secrets appear by name only.
	Asked map[string]any `json:"asked,omitempty"`

	// Settings, before and after.
	Changes []shaper.Change `json:"changes,omitempty"`

	Outcome Outcome `json:"outcome" jsonschema:"enum=begun,enum=done,enum=nothing,enum=refused,enum=failed"`

	// Why it was refused, or has failed.
	Detail string `json:"detail,omitempty"`

	// Jobs or flows that it has changed, with all its requests.
	Count int64 `json:"count,omitempty"`

	// How many operations of one hour the record counts, all of which changed nothing; Object, Detail and other texts are from the last. Absent: one.
	Times int64 `json:"times,omitempty"`

	// When the last of these began. Of an operation in parts, when the last part was recorded. Absent where that is within a minute of its begin.
	Last time.Time `json:"last,omitzero"`

	// Share names the author to whose share of the log the record counts; "" is Author.
	Share string `json:"-"`

	// NoBucket says that the bucket of Object does not exist: the record is in no bucket's list.
	NoBucket bool `json:"-"`

	part      string // of the request under way
	seal      string // digest of what all parts have in common; "": the operation has one part
	secret    string // with which the next part joins
	continues string // the record that this part joins, and the secret that the client sent
	shown     string
	joined    bool
}

// InParts says that a client makes the operation in several requests with one record. token is the previous part's Token, "" for the first part. A
// part joins an earlier record within ten minutes if it has its token. Author, address, request id, object and what is asked for must be equal too.
// Any other part begins its own record.
func (r *Record) InParts(token string) {
	asked := maps.Clone(r.Asked)
	delete(asked, "cursor")
	r.seal = digest(r.owner(), r.Author, r.Address, r.Request, r.Operation, r.Object, r.Reason, asked)
	r.secret = rand.Text()
	if id, shown, ok := strings.Cut(token, "."); ok && len(token) <= maxToken && !strings.ContainsAny(token, " \n") {
		r.continues, r.shown = id, shown
	}
}

const maxToken = 100

// Token returns the token with which the next part joins the record, "" if the operation has one part. Call it after Begin.
func (r *Record) Token() string {
	if r.seal == "" {
		return ""
	}
	return r.ID + "." + r.secret
}

// owner returns a digest of the author to whose share the record counts.
func (r *Record) owner() string { return digest(cmp.Or(r.Share, r.Author)) }

// digest returns a short digest of values.
func digest(values ...any) string {
	text, _ := json.Marshal(values) // texts, numbers and lists of them always marshal
	sum := sha256.Sum256(text)
	const bytes = 16
	return hex.EncodeToString(sum[:bytes])
}

// text returns the record as Redis stores it, within its bounds.
func (r *Record) text() string {
	for length, entries := maxText, maxEntries; ; length, entries = length/2, entries/2 { //nolint:mnd // it ends: texts without entries are short
		text := r.within(length, entries)
		if len(text) <= maxRecord || length < utf8.UTFMax {
			return text
		}
	}
}

// within returns the record with texts and lists of bounded length.
func (r *Record) within(length, entries int) string {
	short := func(text string) string { return cut(text, length) }
	c := *r
	c.ID, c.At = "", time.Time{} // Redis has them already
	c.Reason, c.Detail, c.Author, c.Address, c.Request = short(r.Reason), short(r.Detail), short(r.Author), short(r.Address), short(r.Request)
	c.Object, c.Asked = map[string]string{}, map[string]any{}
	for kind, name := range r.Object {
		c.Object[kind] = short(name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Asked))[:min(len(r.Asked), entries)] {
		value := r.Asked[name]
		switch list, isList := value.([]string); {
		case isList:
			value = shortList(list, length, entries)
		default:
			if text, isText := value.(string); isText {
				value = short(text)
			}
		}
		c.Asked[short(name)] = value
	}
	c.Changes = slices.Clone(r.Changes[:min(len(r.Changes), entries)])
	for i := range c.Changes {
		change := &c.Changes[i]
		change.Setting, change.Before, change.After = shaper.Setting(short(string(change.Setting))), short(change.Before), short(change.After)
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // see jsonLength
	if err := encoder.Encode(c); err != nil {
		return "{}" // texts, numbers and times always marshal
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// cut returns a text that takes at most length bytes as JSON, without quotation marks. A longer text is cut and ends in dots.
func cut(text string, length int) string {
	const dots = "…"
	end, size := 0, 0
	for at := 0; at < len(text); {
		r, width := utf8.DecodeRuneInString(text[at:])
		at += width
		size += jsonLength(r, width)
		switch {
		case size > length:
			return text[:end] + dots
		case size <= length-len(dots):
			end = at
		}
	}
	return text
}

// jsonLength returns how many bytes a character takes as JSON, at most.
func jsonLength(r rune, width int) int {
	const mark, escaped = len(`\"`), len(`\u0001`)
	switch {
	case r == '"' || r == '\\':
		return mark
	case r < ' ' || r == '\u2028' || r == '\u2029' || r == utf8.RuneError && width == 1:
		return escaped
	}
	return width
}

func shortList(list []string, length, entries int) []string {
	short := make([]string, 0, min(len(list), entries)+1)
	for i, text := range list {
		if i == entries {
			return append(short, fmt.Sprintf("and %d more", len(list)-i))
		}
		short = append(short, cut(text, length))
	}
	return short
}
