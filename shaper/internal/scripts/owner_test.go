package scripts_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// writer is a process that writes settings.
type writer struct {
	by       string
	readOnly bool
	revision int
	started  int64
}

// write runs configure.lua and returns its code.
func (r *rig) write(w *writer, fields ...any) int64 {
	r.t.Helper()
	owns := 1
	if w.readOnly {
		owns = 0
	}
	reply := must.Get(lua.Integers(r.run(lua.Configure, r.keys("settings"), append([]any{1, w.revision, "", "", owns, w.by, w.started}, fields...)...)))(r.t)
	if reply[0] == 0 {
		w.started = reply[3]
	}
	return reply[0]
}

// An owner replaces settings, and any other caller makes what is missing. The higher revision wins; at equal revisions the owner that
// started last does, whichever writes last.
func TestOwnersOfSettings(t *testing.T) {
	const written, other, exists = 0, 1, 5
	onBoth(t, func(t *testing.T, r *rig) {
		is := func(what string, code, want int64, rate, owned string) {
			t.Helper()
			got := r.c.HMGet(r.ctx, r.key("settings"), "rate_count", "owned").Val()
			if code != want || fmt.Sprint(got) != fmt.Sprint([]any{rate, owned}) {
				t.Errorf("%s: answered %d, want %d; in force is %v, want %s %s", what, code, want, got, rate, owned)
			}
		}
		a, b, readOnly := &writer{by: "a"}, &writer{by: "b"}, &writer{by: "read-only", readOnly: true, revision: 9}
		is("a read-only process makes what is missing", r.write(readOnly, "rate_count", 2000), written, "2000", "0")
		is("an owner replaces that, whatever its revision", r.write(a, "rate_count", 20), written, "20", "1")
		is("a read-only process changes nothing", r.write(readOnly, "rate_count", 2000), exists, "20", "1")
		is("the owner that starts later wins", r.write(b, "rate_count", 30), written, "30", "1")
		is("sent twice", r.write(b, "rate_count", 30), written, "30", "1")
		is("a later write of the first owner", r.write(a, "rate_count", 20), other, "30", "1")
		a.started = 0
		is("the first owner, restarted", r.write(a, "rate_count", 20), written, "20", "1")
		is("a later write of the other owner", r.write(b, "rate_count", 30), other, "20", "1")
		b.revision = 1
		is("a higher revision", r.write(b, "rate_count", 30), written, "30", "1")
		a.started = 0
		is("a start with a lower revision", r.write(a, "rate_count", 20), other, "30", "1")

		// All is lost: the owner that started last puts its own back, also where another one was first.
		a.revision, a.started = 1, 0
		is("a starts last", r.write(a, "rate_count", 20), written, "20", "1")
		r.del("settings")
		is("b is first after a loss", r.write(b, "rate_count", 30), written, "30", "1")
		is("a comes later", r.write(a, "rate_count", 20), written, "20", "1")
		is("b again", r.write(b, "rate_count", 30), other, "20", "1")
	})
}

// Each change of an owner is noted with both values, beside an override as the configurations say. So is what operators set and reset. The
// record has a bound.
func TestRecordOfChanges(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		record := func() []string {
			return strings.Split(r.field("settings", "changes"), "\n")
		}
		is := func(what, want string) {
			t.Helper()
			var entry struct {
				At, By, Action string
				Changes        [][]string
			}
			if text := record()[0]; text != "" {
				r.ok(json.Unmarshal([]byte(text), &entry))
			}
			if got := fmt.Sprint(entry.By, entry.Action, entry.Changes); got != want || want != "[]" && entry.At == "" {
				t.Errorf("%s: %s at %q, want %s", what, got, entry.At, want)
			}
		}
		a, b := &writer{by: "a"}, &writer{by: "b"}
		r.write(a, "rate_count", 20, "rate_per", 1000000, "capacity", 5, "timetable", "x")
		is("what is new is no change", "[]")
		r.write(a, "rate_count", 20, "rate_per", 1000000, "capacity", 5, "timetable", "y")
		is("nothing that people configure", "[]")
		r.write(b, "rate_count", 30, "rate_per", 1000000, "capacity", 5)
		is("both fields of a rate", "b[[rate_count 20 30] [rate_per 1000000 1000000]]")
		control := func(args ...any) {
			t.Helper()
			r.run(lua.Control, r.keys("settings", "pace", "count", "outbox", "outbox_texts"), append([]any{"tundish:wake", "b"}, args...)...)
		}
		count := len(record())
		for range 2 {
			control("set", "anna", "rate_count", 40, "rate_per", 1000000)
			is("an override", "annaset[[rate_count 30 40] [rate_per 1000000 1000000]]")
		}
		for range 2 {
			control("reset", "bert", "rate_count", "rate_per", "capacity")
			is("a reset", "bertreset[[rate_count 40 30] [rate_per 1000000 1000000]]")
		}
		control("set", "anna", "capacity", 5)
		is("an override with the configured value", "annaset[[capacity 5 5]]")
		control("reset", "anna", "capacity")
		is("it ends", "annareset[[capacity 5 5]]")
		must.Equal(t, len(record())-count, 4, "changes by operators were noted")
		control("set", "anna", "capacity", 9)
		b.started = 0
		r.write(b, "rate_count", 30, "capacity", 6, "quotas", strings.Repeat("q", 1000))
		is("under an override, and a long value", "b[[capacity 5 6] [quotas  "+strings.Repeat("q", 200)+"]]")
		for i := range 30 {
			r.write(b, "capacity", 100+i)
		}
		if got := record(); len(got) != 20 || !strings.Contains(got[0], `["capacity","128","129"]`) {
			t.Errorf("%d changes are kept, the first %s", len(got), got[0])
		}
		long := strings.Repeat("\x01", 300) // six bytes each as JSON
		for i := range 30 {
			r.write(b, "limits", fmt.Sprint(i, long), "quotas", fmt.Sprint(i, long), "events", fmt.Sprint(i, long))
		}
		if n := r.c.HStrLen(r.ctx, r.key("settings"), "changes").Val(); n > 16384 || n < 8000 {
			t.Errorf("the record has %d bytes", n)
		}
	})
}

// Where a process goes by other settings than are in force is kept as long as it says so.
func TestNoteDifferences(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		note := func(process, text string) any {
			return r.run(lua.NoteDifferences, r.keysOf(lua.NoteDifferences), process, text)
		}
		noted := func() int64 { return r.hlen("differing") }
		for range 2 {
			r.wants("noted", fmt.Sprint(note("a", "rate")), "1")
		}
		if text := r.field("differing", "a"); !strings.HasSuffix(text, " rate") || noted() != 1 {
			t.Errorf("noted is %q, of %d", text, noted())
		}
		r.wants("no difference any more", fmt.Sprint(note("a", "")), "0")
		r.hset("differing", "gone", "1 rate")
		for i := range 60 {
			note(fmt.Sprint("p", i), "rate")
		}
		if noted() != 50 || r.c.HExists(r.ctx, r.key("differing"), "gone").Val() {
			t.Errorf("%d processes are noted, or one that went", noted())
		}
		if ttl := r.c.PTTL(r.ctx, r.key("differing")).Val(); ttl <= 0 {
			t.Errorf("the key lives for %s", ttl)
		}
	})
}
