package lua_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/lua"
)

// The usual case in one piece decides, answers and stores what the whole script does,
// and leaves to it what is not the usual case: the same batches go into two buckets, once as
// jobs that are alike and once as those that are also new.
func TestUsualCaseIsTheSame(t *testing.T) {
	t.Parallel()
	const hour = 3600 * second
	const month = 744 * hour // a window that hardly ever ends during the test
	log := limit{b: hour, full: 12, key: "log", algorithm: "sliding_window_log"}
	counter := limit{a: 3, b: month, full: 12, key: "counter", algorithm: "sliding_window_counter"}
	fixed := limit{b: month, full: 12, key: "fixed", algorithm: "fixed_window"}
	bucket := per(1, hour, 12)
	shadow := per(1, hour, 3)
	shadow.key, shadow.shadow = "shadow", 1
	for name, limits := range map[string][]limit{
		"no limit": nil, "token bucket": {bucket}, "log": {log}, "counter": {counter}, "fixed": {fixed},
		"all of them": {bucket, log, counter, fixed}, "shadow": {shadow, bucket},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, r *rig) {
				other := *r
				other.name = "u"
				sides := []*rig{r, &other}
				for _, side := range sides {
					side.configure(settings{capacity: 20, rateCount: 3, ratePer: second, shed: [3]int64{90, 80, 70}})
				}
				send := func(step string, jobs, priority int) {
					var answers []string
					for way, side := range sides {
						keys, args := side.alike(limits, jobs, priority, "")
						args[5] = way + 1
						for n := range jobs {
							args = append(args, fmt.Sprint(step, n), fmt.Sprintf("%011dg%c%03d \n{}", 0, "?khnl"[priority], n+1))
						}
						answers = append(answers, fmt.Sprint(side.run(lua.Enqueue, keys, args...)))
					}
					if way := [2]string{r.timeless(answers[0]), r.timeless(answers[1])}; way[0] != way[1] {
						t.Errorf("%s: answers\n%s\nand as the usual case\n%s", step, way[0], way[1])
					}
					if there := [2]string{r.timeless(r.contents()), r.timeless(other.contents())}; there[0] != there[1] {
						t.Errorf("%s: holds\n%s\nand as the usual case\n%s", step, there[0], there[1])
					}
				}
				for priority := 1; priority <= 4; priority++ {
					send(fmt.Sprint("first", priority), 2, priority)
				}
				send("first1", 2, 1) // sent twice
				r.pause()
				other.pause()
				send("paused", 1, 3)
				send("too-many", 19, 3)
				send("nearly-full", 1, 4)
				send("brim", 11, 1)
				send("full", 1, 1)
			})
		})
	}
}

// A batch that was sent before is found out by its first job, wherever that is now.
func TestUsualCaseSentTwice(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *rig) {
		r.configure(settings{rateCount: 100_000, capacity: 10})
		send := func() (asOne bool, codes []int64) {
			keys, args := r.alike(nil, 3, 3, "")
			args[5] = 2
			for n := range 3 {
				args = append(args, fmt.Sprint("j", n), fmt.Sprintf("%011dgn%03d \n", 0, n+1))
			}
			in := r.reader(lua.Enqueue, keys, args...)
			in.Int()
			if in.Int() == 1 {
				return true, nil
			}
			for in.Left() > 0 {
				codes = append(codes, in.Int())
				in.Int()
				in.Int()
				in.Int()
			}
			return false, codes
		}
		if asOne, _ := send(); !asOne {
			t.Fatal("the first time is not the usual case")
		}
		// The usual case alone does not write this field.
		if r.c.HExists(r.ctx, r.key("count"), "scheduled").Val() {
			t.Error("the usual case is not what decided")
		}
		again := func(where string) {
			t.Helper()
			if asOne, codes := send(); asOne || fmt.Sprint(codes) != "[3 3 3]" {
				t.Errorf("%s: as one %t, codes %v", where, asOne, codes)
			}
		}
		again("all wait")
		c := r.claim(ask{want: 1, horizon: 200_000})
		again("the first is in flight")
		r.settle(outcome{lease: c.jobs[0], result: done})
		again("the first is done")
		if waits := r.c.LLen(r.ctx, r.key("q:normal:")).Val(); waits != 2 {
			t.Errorf("%d wait, want 2", waits)
		}
	})
}

// timeless takes the times out, unless the server's stands still.
func (r *rig) timeless(text string) string {
	if r.mini != nil {
		return text
	}
	text = regexp.MustCompile(`\d{16}`).ReplaceAllString(text, "T")
	text = regexp.MustCompile(`\b\d{9,15}\b`).ReplaceAllString(text, "D") // what is left of an hour or a month
	return regexp.MustCompile(`(?m) \d+:T(:\d+)? expires`).ReplaceAllString(text, " tokens expires")
}

// contents are all keys of the bucket with what they hold.
func (r *rig) contents() string {
	r.t.Helper()
	names, err := r.c.Keys(r.ctx, r.key("*")).Result()
	r.ok(err)
	slices.Sort(names)
	var all []string
	for _, name := range names {
		var held any
		switch kind := r.c.Type(r.ctx, name).Val(); kind {
		case "string":
			held = r.c.Get(r.ctx, name).Val()
		case "hash":
			held = r.c.HGetAll(r.ctx, name).Val()
		case "list":
			held = r.c.LRange(r.ctx, name, 0, -1).Val()
		case "zset":
			held = r.c.ZRangeWithScores(r.ctx, name, 0, -1).Val()
		default:
			r.t.Fatalf("%s is a %s", name, kind)
		}
		text := strings.Replace(fmt.Sprint(held), "scheduled:0 ", "", 1) // the usual case does not write that there are none
		all = append(all, fmt.Sprintf("%s %s expires %t", strings.TrimPrefix(name, r.key("")), text, r.c.TTL(r.ctx, name).Val() > 0))
	}
	return strings.Join(all, "\n")
}
