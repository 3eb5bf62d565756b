package audit

import (
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

// Outcome is how an operation has ended.
type Outcome string

// The outcomes.
const (
	Begun   Outcome = "begun"   // it goes on, or its process died: whatever it has changed by then is changed
	Done    Outcome = "done"    // it has changed something
	Nothing Outcome = "nothing" // there was nothing to change
	Refused Outcome = "refused" // it was wrong, or not possible
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

	// What was asked for beside that. Of settings, payloads and secrets it has the names.
	Asked map[string]any `json:"asked,omitempty"`

	// Settings, before and after.
	Changes []shaper.Change `json:"changes,omitempty"`

	Outcome Outcome `json:"outcome" jsonschema:"enum=begun,enum=done,enum=nothing,enum=refused,enum=failed"`

	// Why it was refused, or has failed.
	Detail string `json:"detail,omitempty"`

	// Jobs or flows that it has changed, with all its requests.
	Count int64 `json:"count,omitempty"`

	part string // of the request that is carried out
}

// Continued has the records of several requests be one: those with the same request id, author, operation and object. It is for changes that a
// client makes in parts, which only count.
func (r *Record) Continued() {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %q", r.Request, r.Author, r.Operation)
	for _, kind := range slices.Sorted(maps.Keys(r.Object)) {
		fmt.Fprintf(sum, " %q %q", kind, r.Object[kind])
	}
	const bytes = 16
	r.ID = hex.EncodeToString(sum.Sum(nil)[:bytes])
}

// text is the record as Redis has it, within its bounds.
func (r *Record) text() string {
	c := *r
	c.Reason, c.Detail, c.Author, c.Request = bound(r.Reason), bound(r.Detail), bound(r.Author), bound(r.Request)
	c.Object, c.Asked = map[string]string{}, map[string]any{}
	for kind, name := range r.Object {
		c.Object[kind] = bound(name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Asked))[:min(len(r.Asked), maxEntries)] {
		value := r.Asked[name]
		switch list, isList := value.([]string); {
		case isList:
			value = boundAll(list)
		default:
			if text, isText := value.(string); isText {
				value = bound(text)
			}
		}
		c.Asked[bound(name)] = value
	}
	c.Changes = slices.Clone(r.Changes[:min(len(r.Changes), maxEntries)])
	for i := range c.Changes {
		change := &c.Changes[i]
		change.Before, change.After = bound(change.Before), bound(change.After)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "{}" // texts, numbers and times always marshal
	}
	return string(text)
}

// bound is the beginning of a text that is too long. A record has room for names of flows, which are as long.
func bound(text string) string {
	if len(text) <= maxText {
		return text
	}
	const dots = "…"
	cut := text[:maxText-len(dots)]
	for !utf8.ValidString(cut) && len(cut) > maxText-len(dots)-utf8.UTFMax {
		cut = cut[:len(cut)-1]
	}
	return strings.ToValidUTF8(cut, "") + dots
}

func boundAll(list []string) []string {
	short := make([]string, 0, min(len(list), maxEntries)+1)
	for i, text := range list {
		if i == maxEntries {
			return append(short, fmt.Sprintf("and %d more", len(list)-i))
		}
		short = append(short, bound(text))
	}
	return short
}
