package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// A payload is shown as it was sent, however large, deep or broken it is: a page has its beginning, and says how many bytes there are.
func TestPayloads(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	const levels = 10_000
	for id, payload := range map[string]struct{ sent, shown string }{
		"integer":  {`{"id":1970670598291982290,"n":[-9223372036854775808,18446744073709551615]}`, `{"id":1970670598291982290,"n":[-9223372036854775808,18446744073709551615]}`},
		"float":    {`{"a":1.10,"b":1e400,"c":-0}`, `{"a":1.10,"b":1e400,"c":-0}`},
		"twice":    {`{"b":1,"a":2,"a":3}`, `{"b":1,"a":2,"a":3}`},
		"escapes":  {`{"a":"\u003c\/\ud83d\ude00\u202e"}`, `{"a":"\u003c\/\ud83d\ude00\u202e"}`},
		"8MiB":     {`"` + strings.Repeat("a", 8<<20-2) + `"`, "… 8388608 bytes in all: dispatcher job show letters 8MiB"},
		"8MiBraw":  {strings.Repeat("\xff", 8<<20), "… 8388608 bytes in all"},
		"deep":     {strings.Repeat("[", levels) + strings.Repeat("]", levels), strings.Repeat("[", levels) + strings.Repeat("]", levels)},
		"deeper":   {strings.Repeat("[", levels+1) + strings.Repeat("]", levels+1), strings.Repeat("[", levels+1) + strings.Repeat("]", levels+1)},
		"objects":  {strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels), strings.Repeat(`{"a":`, 100)},
		"byte":     {"\xff", "00000000  ff"},
		"cut":      {strings.Repeat("é", 40_000), "… 80000 bytes in all"}, // in the midst of a character
		"nothing":  {"", ""},
		"one line": {"plain text", "plain text"},
	} {
		id = strings.ReplaceAll(id, " ", "-")
		s.enqueue(shaper.Job{Bucket: "letters", ID: id, Payload: []byte(payload.sent)})
		page := v.get("/console/jobs?id=" + id)
		_, texts, _ := readPage(t, page.text)
		if all := strings.Join(texts, ""); page.status != http.StatusOK || !strings.Contains(all, payload.shown) || strings.ContainsRune(all, '\ufffd') {
			t.Errorf("%s: %d, %.500s", id, page.status, page.text)
		}
		if len(page.text) > 512<<10 {
			t.Errorf("%s: the page has %d bytes", id, len(page.text))
		}
	}
}
