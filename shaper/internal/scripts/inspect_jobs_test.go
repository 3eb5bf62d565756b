package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/lua"
)

// What is kept of jobs is read up to a number of bytes, one job in any case, with their payloads or without.
func TestInspectJobs(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const head = "1 2 00000000000cn001 {\"f\":\"a\"}\n"
		payload := strings.Repeat("line\n", 40)
		r.hset("body", "a", head+payload, "b", head, "c", head+payload, "unreadable", "no job of ours")
		r.hset("meta", "a", "5 1 1 0 0 - ")
		r.hset("attempts", "a", "1\n{}")
		read := func(most, bare int, ids ...any) []string {
			in := lua.NewReader(r.run(lua.InspectJobs, r.keys("body", "meta", "attempts"), append([]any{most, bare}, ids...)...))
			texts := []string{fmt.Sprint(in.Int())}
			for in.Left() > 0 {
				texts = append(texts, in.Text())
			}
			r.ok(in.Err())
			return texts
		}
		whole := len(head) + len(payload)
		for _, c := range []struct {
			most, bare int
			ids        []any
			want       []string
		}{
			{1 << 20, 0, []any{"a", "gone", "unreadable"}, []string{fmt.Sprint(whole + 12 + 4 + 14), head + payload, "5 1 1 0 0 - ", "1\n{}", "", "", "", "no job of ours", "", ""}},
			{1 << 20, 1, []any{"a", "unreadable"}, []string{fmt.Sprint(whole + 12 + 4 + 14), head, "5 1 1 0 0 - ", "1\n{}", "no job of ours", "", ""}},
			{1, 1, []any{"a", "b"}, []string{fmt.Sprint(whole + 12 + 4), head, "5 1 1 0 0 - ", "1\n{}"}},
			{whole + len(head), 1, []any{"c", "b", "a"}, []string{fmt.Sprint(whole + len(head)), head, "", "", head, "", ""}},
		} {
			if got := read(c.most, c.bare, c.ids...); !slices.Equal(got, c.want) {
				t.Errorf("%d bytes of %v: %q, want %q", c.most, c.ids, got, c.want)
			}
		}
	})
}
