package scripts_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// Two callers in seven letters.
const (
	anna = "annaXYZ"
	bert = "bertXYZ"
)

// Codes of enqueue.lua.
const (
	isIn      = 1
	isThere   = 3
	isReused  = 4
	isAnother = 18
)

// knowsCallers has the bucket know callers: since when jobs without one are nobody's, and until when former ids count.
func (r *rig) knowsCallers(from, till int64) {
	r.t.Helper()
	r.hset("settings", "callers", fmt.Sprintf("%d %d", from, till))
}

// codes enqueues jobs one after the other.
func (r *rig) codes(jobs ...entry) string {
	r.t.Helper()
	var codes []string
	for _, job := range jobs {
		codes = append(codes, fmt.Sprint(r.enqueue(nil, job)[0].code))
	}
	return strings.Join(codes, " ")
}

// askers are the same job of two callers and of none, and one of the first with other content.
func askers(id string) []entry {
	return []entry{{id: id, caller: anna, content: "1"}, {id: id, caller: bert, content: "1"}, {id: id, content: "1"}, {id: id, caller: anna, content: "2"}}
}

// An id is that of one caller, from its enqueue until its dedupe window is over, however the job ends.
func TestCallerOfAJob(t *testing.T) {
	t.Parallel()
	known := fmt.Sprint(isThere, isAnother, isThere, isReused)
	for name, end := range map[string]func(r *rig){
		"waits": func(*rig) {},
		"done":  func(r *rig) { r.settle(r.takeOne(1)) },
		"retries": func(r *rig) {
			o := r.takeOne(2)
			o.delay = second
			r.settle(o)
		},
		"dead":      func(r *rig) { r.settle(r.takeOne(3)) },
		"dropped":   func(r *rig) { r.settle(r.takeOne(9)) },
		"cancelled": func(r *rig) { r.cancel("x", "") },
		"purged":    func(r *rig) { r.purge(purge{id: "p"}) },
		"redriven": func(r *rig) {
			r.settle(r.takeOne(3))
			r.redrive("x")
		},
		"trimmed": func(r *rig) {
			r.settle(r.takeOne(3))
			r.hset("settings", "dead_retention", 1)
			r.pass(second)
			r.trim(10, 1<<20)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBothInCI(t, func(t *testing.T, r *rig) {
				r.configure(settings{})
				r.knowsCallers(r.now(), r.now())
				r.put("before") // has no caller
				plain := r.body("before")
				r.cancel("before", "")
				must.Be(t, r.codes(entry{id: "x", caller: anna, content: "1"}), fmt.Sprint(isIn), "enqueued")
				if more := len(r.body("x")) - len(plain); more > 8+len("1") {
					t.Errorf("%d bytes more beside the job", more)
				}
				end(r)
				must.Equal(t, r.codes(askers("x")...), known, "codes")
				seen := r.field("seen", "x")
				if plain := r.field("seen", "before"); seen != "" && (len(seen) > len(plain)+8 || r.job("x").caller != lastOf(seen, 6) || !r.job("x").nobodys) {
					t.Errorf("seen holds %q, without a caller %q; %+v", seen, plain, r.job("x"))
				}
				// The window is over, at most two seconds later than without a caller.
				if seen != "" {
					r.pass(3602 * second)
					must.Equal(t, r.codes(entry{id: "x", caller: bert, content: "1"}), fmt.Sprint(isIn), "after the window")
				}
			})
		})
	}
}

func (r *rig) body(id string) string { return r.field("body", id) }

func lastOf(text string, n int) string { return text[max(len(text)-n, 0):] }

// What stands with the caller in a job's head is read as without: when it expires, its batch, its callback.
func TestCallerBesideOtherFields(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("first")
		r.codes(entry{id: "long", caller: anna, expires: 3600 * second, callback: true, agrees: "abcdefgh"}, entry{id: "short", caller: bert, expires: second, callback: true})
		r.pass(2 * second)
		c := r.claim(ask{want: 3})
		if len(c.jobs) != 2 || c.jobs[1].id != "long" || !strings.HasSuffix(c.jobs[1].mark, anna) || len(c.died) != 1 || c.died[0].id != "short" {
			t.Errorf("claimed %+v, died %+v", c.jobs, c.died)
		}
		must.Equal(t, r.hlen("callback_texts"), 1, "callbacks")
		// A bucket in which nothing expires does not learn from a caller that something does.
		r.name = "c"
		r.configure(settings{})
		r.codes(entry{id: "x", caller: anna})
		must.Equal(t, r.field("pace", "expiring"), "", "expiring is")
	})
}

// Jobs without a caller are everybody's if they came before callers were known, until they end, and nobody's if they came later.
func TestJobsFromBeforeCallers(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		r.configure(settings{})
		r.put("never known")
		if r.job("never known").nobodys || r.codes(entry{id: "never known", caller: anna}) != fmt.Sprint(isThere) {
			t.Error("of a bucket that knows no callers")
		}
		r.putAt("+7200000000", "waits")
		from := r.now() + 10*second
		r.knowsCallers(from, from)
		r.cancel("never known", "")
		r.pass(10 * second)
		r.put("later")
		for id, want := range map[string]int{"waits": isThere, "later": isAnother, "never known": isAnother} {
			if got := r.codes(entry{id: id, caller: bert}); got != fmt.Sprint(want) || r.job(id).nobodys != (want == isAnother) {
				t.Errorf("%s: %s, want %d: %+v", id, got, want, r.job(id))
			}
		}
		// In a bucket that knew callers from its start, a job without one that has ended is nobody's, although the same job may come
		// again from an older program.
		now := r.now()
		r.knowsCallers(now, now+3600*second)
		r.put("ended")
		r.cancel("ended", "")
		if got := r.job("ended"); !got.nobodys {
			t.Errorf("a job that has ended: %+v", got)
		}
	})
}

// configure.lua notes it once: of a bucket that was there, for one dedupe window to come.
func TestSinceWhenCallersAreKnown(t *testing.T) {
	onBothInCI(t, func(t *testing.T, r *rig) {
		configure := func(revision int) {
			r.run(lua.Configure, r.keys("settings", "body", "dead", "aside", "before", "leases"), 1, revision, "", r.name, 1, "test", 0, "generation", 0, "dedupe_window", 5*second)
		}
		now := r.now()
		fresh, was := fmt.Sprintf("%d %d", now, now+5*second), fmt.Sprintf("%d %d", now+5*second, now+5*second)
		configure(2)
		must.Equal(t, r.field("settings", "callers"), fresh, "of a new bucket")
		r.hdel("settings", "callers")
		for _, revision := range []int{1, 2, 3} { // the first changes nothing else
			configure(revision)
			must.Equal(t, r.field("settings", "callers"), was, "of one that was there")
			r.pass(second)
		}
	})
}

// beforeCallers are scripts of the version before callers.
func beforeCallers(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, name := range []string{"enqueue", "settle"} {
		file := must.Get(os.Open(filepath.Join("testdata", "before_callers", name+".lua.gz")))(t)
		defer file.Close()
		packed := must.Get(gzip.NewReader(file))(t)
		text := must.Get(io.ReadAll(packed))(t)
		texts[name] = string(text)
	}
	return texts
}

// While programs with and without callers run together, an Idempotency-Key is one job, whichever of them gets it.
func TestProgramsWithAndWithoutCallers(t *testing.T) {
	t.Parallel()
	then := beforeCallers(t)
	of := func(caller string) entry { // the job of a key: its id is derived
		return entry{id: "derived-" + caller, former: "key", caller: caller, content: "1"}
	}
	other := of(anna)
	other.content = "2"
	plain := entry{id: "key", content: "1"}
	for name, end := range map[string]func(r *rig){
		"waits": func(*rig) {},
		"done":  func(r *rig) { r.settle(r.takeOne(1)) },
		"done before": func(r *rig) {
			o := r.takeOne(1)
			o.mark = o.mark[:13]
			r.before = then
			r.settle(o)
			r.before = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				both := func(name string) {
					r.name = name
					r.configure(settings{dedupe: 60 * second})
					r.knowsCallers(r.now()+60*second, r.now()+60*second)
				}
				both("old-first")
				r.before = then
				r.codes(plain)
				r.before = nil
				end(r)
				for range 2 {
					if a := r.enqueue(nil, of(anna))[0]; a.code != isThere || a.wait != 1 {
						t.Errorf("without callers, then with: %+v", a)
					}
				}
				if a := r.enqueue(nil, other)[0]; a.code != isReused {
					t.Errorf("other content: %+v", a)
				}

				both("new-first")
				r.codes(of(anna))
				end(r)
				r.before = then
				must.Equal(t, r.codes(plain, entry{id: "key", content: "2"}, entry{id: "x"}), fmt.Sprint(isThere, isReused, isIn), "with callers, then without")
				r.before = nil
				must.Equal(t, r.codes(of(anna), other, of(bert), of(bert)), fmt.Sprint(isThere, isReused, isIn, isThere), "with callers again, and another one")
				// The mark under the key is no job of an id that somebody chooses, and it is forgotten, also by programs without callers.
				if got := r.codes(entry{id: "key", caller: bert, content: "3"}); got != fmt.Sprint(isIn) || r.job("key").body == "" {
					t.Errorf("a chosen id: %s", got)
				}
				r.pass(62 * second)
				r.before = then
				for {
					r.pass(second)
					jobs := r.claim(ask{want: 1}).jobs
					if len(jobs) == 0 {
						break
					}
					o := outcome{lease: jobs[0], result: 1}
					o.mark = o.mark[:13]
					r.settle(o)
				}
				r.pass(62 * second)
				r.codes(entry{id: "last"})
				o := outcome{lease: r.claim(ask{want: 1}).jobs[0], result: 1}
				o.mark = o.mark[:13]
				r.settle(o)
				if n := r.hlen("seen"); n != 1 {
					t.Errorf("%d ids are remembered: %v", n, r.hash("seen"))
				}
				// The window after the upgrade is over.
				r.before = nil
				r.codes(plain)
				must.Equal(t, r.codes(of(anna)), fmt.Sprint(isIn), "after the window")
			})
		})
	}
}
