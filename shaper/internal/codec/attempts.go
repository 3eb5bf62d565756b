package codec

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tundish-io/tundish/shaper"
)

// Bounds of an attempt in Redis, in bytes. Even if JSON escapes every byte of them, a line has less than the 2 KiB of
// lua/lib/outcomes.lua.
const (
	maxDetail    = 200
	maxReason    = 40
	maxAddresses = 4
	maxAddress   = 60
)

// attempt is a line of lua/lib/outcomes.lua, which reads its first and its last field.
type attempt struct {
	At     int64  `json:"at"` // microseconds, by the clock of Redis
	Number int    `json:"number"`
	Took   int64  `json:"took,omitempty"` // microseconds
	Status int    `json:"status,omitempty"`
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`

	Addresses []string `json:"addresses,omitempty"` // that detail hides, in its order

	Result string `json:"result"`
}

// cut returns at most n bytes of a text, in whole characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// ShortAttempt is an attempt with no more text than Redis keeps.
func ShortAttempt(a shaper.JobAttempt) shaper.JobAttempt {
	a.Reason, a.Detail = cut(a.Reason, maxReason), cut(a.Detail, maxDetail)
	return a
}

// AttemptLine is an attempt as settle.lua wants it.
func AttemptLine(a shaper.JobAttempt) string {
	hidden := hiddenIn(a.Detail, a.Private)
	a = ShortAttempt(a)
	text, err := json.Marshal(attempt{
		At: a.At.UnixMicro(), Number: a.Number, Took: a.Took.Microseconds(), Status: a.Status,
		Reason: a.Reason, Detail: a.Detail, Addresses: hidden, Result: a.Result.String(),
	})
	if err != nil {
		return "" // strings and numbers always marshal
	}
	return string(text)
}

// Attempts returns the attempts of a job that Redis keeps, oldest first. It skips a line that cannot be parsed.
func Attempts(text string) []shaper.JobAttempt {
	_, lines, _ := strings.Cut(text, "\n")
	var attempts []shaper.JobAttempt
	for line := range strings.Lines(lines) {
		var a attempt
		if json.Unmarshal([]byte(line), &a) != nil {
			continue
		}
		if one, ok := a.open(); ok {
			attempts = append(attempts, one)
		}
	}
	return attempts
}

// open converts a parsed line to an attempt. ok is false if the result is unknown.
func (a *attempt) open() (one shaper.JobAttempt, ok bool) {
	result := slices.IndexFunc(shaper.Results(), func(r shaper.Result) bool { return r.String() == a.Result })
	if result < 0 {
		return one, false
	}
	return shaper.JobAttempt{
		At: time.UnixMicro(a.At), Number: a.Number, Took: time.Duration(a.Took) * time.Microsecond, Status: a.Status,
		Reason: a.Reason, Detail: a.Detail, Result: shaper.Results()[result], Private: shown(a.Detail, a.Addresses),
	}, true
}

// hiddenIn returns the addresses of private that detail hides, nil if the two differ in other things.
func hiddenIn(detail, private string) (addresses []string) {
	before, after, hides := strings.Cut(detail, shaper.HiddenAddress)
	rest, isSame := strings.CutPrefix(private, before)
	for hides && isSame && len(addresses) < maxAddresses {
		before, after, hides = strings.Cut(after, shaper.HiddenAddress)
		n := strings.IndexFunc(rest, func(r rune) bool { return !isOfAddress(r) })
		if n < 0 {
			n = len(rest)
		}
		address := strings.TrimRight(rest[:n], ":.") // which may end a sentence
		if rest, isSame = strings.CutPrefix(rest[len(address):], before); !isSame || address == "" || len(address) > maxAddress {
			return nil
		}
		addresses = append(addresses, address)
	}
	if !hides && rest != "" {
		return nil
	}
	return addresses
}

// isOfAddress reports whether r can occur in an IP address with its zone, port and brackets. JSON escapes none of these characters.
func isOfAddress(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune(".:%[]", r)
}

// shown returns detail with the hidden addresses put back, or "" if no addresses are known.
func shown(detail string, addresses []string) string {
	if len(addresses) == 0 {
		return ""
	}
	for _, address := range addresses {
		detail = strings.Replace(detail, shaper.HiddenAddress, address, 1)
	}
	return detail
}
