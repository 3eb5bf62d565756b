package shaper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

func TestClockObserves(t *testing.T) {
	t.Parallel()
	type call struct {
		start, took time.Duration // on our clock
		redis       time.Duration // on that of Redis
		step        time.Duration
	}
	const hour = time.Hour
	for name, calls := range map[string][]call{
		"steady":               {{0, 1, hour, 0}, {time.Second, 1, hour + time.Second, 0}},
		"a slow call":          {{0, time.Millisecond, hour, 0}, {time.Second, 1400 * time.Millisecond, hour + 2300*time.Millisecond, 0}},
		"slow the other way":   {{0, time.Millisecond, hour, 0}, {time.Second, 1400 * time.Millisecond, hour + time.Second, 0}},
		"drift":                {{0, time.Millisecond, hour, 0}, {30 * time.Second, time.Millisecond, hour + 30*time.Second + 15*time.Millisecond, 0}},
		"a step forwards":      {{0, 0, hour, 0}, {time.Second, 0, 2*hour + time.Second, hour}, {2 * time.Second, 0, 2*hour + 2*time.Second, 0}},
		"a step backwards":     {{0, 0, hour, 0}, {time.Second, 0, time.Second, -hour}},
		"half a second":        {{0, 0, hour, 0}, {time.Second, 0, hour + 1500*time.Millisecond, 500 * time.Millisecond}},
		"a step in a slow one": {{0, 0, hour, 0}, {time.Second, time.Second, hour + 2500*time.Millisecond, 500 * time.Millisecond}},
	} {
		c := newClock()
		if c.latest(c.base) != 0 {
			t.Error("an unused clock knows the time")
		}
		for i, call := range calls {
			start := c.base.Add(call.start)
			if got := c.observe(start, start.Add(call.took), call.redis.Microseconds()); (got-call.step).Abs() > 2*time.Millisecond || (got == 0) != (call.step == 0) {
				t.Errorf("%s: call %d: step %s, want %s", name, i, got, call.step)
			}
			// Redis read its clock before the end, so it was not later then.
			if got := c.latest(start.Add(call.took)); got < call.redis.Microseconds() {
				t.Errorf("%s: call %d: latest %d, it was %s", name, i, got, call.redis)
			}
		}
	}
}

// The clock calls nothing a step that the calls can explain.
func TestClockIsNotFooledBySlowCalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newClock()
		micros := func(name string, most int64) time.Duration {
			return time.Duration(rapid.Int64Range(0, most).Draw(t, name)) * time.Microsecond
		}
		at, offset := time.Duration(0), micros("offset", 1e12)
		for range rapid.IntRange(1, 20).Draw(t, "calls") {
			at += micros("pause", 1e7)
			there, back := micros("there", 2e6), micros("back", 2e6)
			start := c.base.Add(at)
			if step := c.observe(start, start.Add(there+back), (at + there + offset).Microseconds()); step != 0 {
				t.Fatalf("step %s", step)
			}
			if latest := c.latest(start.Add(there)); latest < (at + there + offset).Microseconds() {
				t.Fatal("Redis is later than it can be")
			}
		}
	})
}

func TestClockRemembersRoundTrips(t *testing.T) {
	t.Parallel()
	c := newClock()
	if a, b := c.rtt(); a != 0 || b != 0 {
		t.Errorf("at first %s and %s", a, b)
	}
	for i := range 20 {
		c.observe(c.base, c.base.Add(time.Duration(20-i)*time.Millisecond), 0)
	}
	if a, b := c.rtt(); a != time.Millisecond || b != rttSamples*time.Millisecond {
		t.Errorf("shortest %s, longest %s", a, b)
	}
}

func TestHorizon(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		interval, rtt time.Duration
		questions     int
		want          time.Duration
	}{
		{0, 0, 0, 20 * time.Millisecond},
		{time.Millisecond, time.Millisecond, 0, 20 * time.Millisecond},
		{2 * time.Millisecond, 0, 0, 32 * time.Millisecond},
		{2 * time.Millisecond, 0, 1, 40 * time.Millisecond},
		{2 * time.Millisecond, 0, 2, 48 * time.Millisecond},
		{time.Microsecond, 10 * time.Millisecond, 0, 40 * time.Millisecond},
		{time.Hour, 0, 0, 200 * time.Millisecond},
		{31 * 24 * time.Hour, time.Minute, 2, 200 * time.Millisecond},
	} {
		if got := horizon(test.interval, test.rtt, test.questions); got != test.want {
			t.Errorf("horizon(%s, %s, %d) = %s, want %s", test.interval, test.rtt, test.questions, got, test.want)
		}
	}
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	p := DefaultRetryPolicy()
	for attempt, want := range map[int]time.Duration{0: 5, 1: 5, 2: 10, 3: 20, 4: 40, 13: 20480, 14: 40960, 15: 43200, 16: 43200, 1000: 43200} {
		if got := p.Delay(attempt, 0, 0.999999999); got < want*time.Second-time.Second || got > want*time.Second {
			t.Errorf("attempt %d: %s, want about %ds", attempt, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := RetryPolicy{MaxAttempts: 1}
		p.MinBackoff = time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(MaxDelay)).Draw(t, "min"))
		p.MaxBackoff = time.Duration(rapid.Int64Range(int64(p.MinBackoff), int64(MaxDelay)).Draw(t, "max"))
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		after := time.Duration(rapid.Int64().Draw(t, "retry after"))
		got := p.Delay(rapid.IntRange(-1, MaxTries).Draw(t, "attempt"), after, rapid.Float64Range(0, 0.999999).Draw(t, "random"))
		if got < 0 || got > p.MaxBackoff || got < min(after, p.MaxBackoff) {
			t.Fatalf("delay %s of at most %s, asked for %s", got, p.MaxBackoff, after)
		}
	})
}

func drawJob(t *rapid.T) Job {
	return Job{
		Bucket: "b", ID: "x", Flow: rapid.String().Draw(t, "flow"), URL: rapid.String().Draw(t, "url"),
		Method: rapid.SampledFrom([]string{"", "PUT", "a b\n"}).Draw(t, "method"),
		Headers: rapid.OneOf(rapid.Just(map[string]string(nil)),
			rapid.MapOfN(rapid.String(), rapid.String(), 1, 3)).Draw(t, "headers"),
		Payload: rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "payload"), MaxAttempts: rapid.IntRange(0, 9).Draw(t, "attempts"),
		Delay: time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "delay")) * time.Microsecond,
		Cost:  rapid.Int64Range(0, 3).Draw(t, "cost"),

		ExpiresIn: time.Duration(rapid.SampledFrom([]int64{0, 0, 1, 1e12}).Draw(t, "expires")) * time.Microsecond,
	}
}

// What is sealed is what is opened, and the mark is that of the content.
func TestEnvelope(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		job, generated := drawJob(t), rapid.Bool().Draw(t, "generated")
		packed, err := seal(nil, &job, generated)
		if err != nil {
			t.Fatal(err)
		}
		mark, content := string(packed[:markLength]), contentOf(packed)
		index := rapid.IntRange(1, enqueueBatch).Draw(t, "index")
		setIndex(packed, index)
		got, err := open(fmt.Sprintf("%d %d ", -3, 1783228800123456) + string(packed))
		if err != nil {
			t.Fatal(err)
		}
		if got.mark != mark || got.sequence != int64(index)-3 || got.enqueued != 1783228800123456 || !bytes.Equal(got.payload, job.Payload) ||
			got.Flow != job.Flow || got.URL != job.URL || got.Method != job.Method || !maps.Equal(got.Headers, job.Headers) ||
			got.MaxAttempts != job.MaxAttempts {
			t.Fatalf("sealed %+v, opened %+v", job, got)
		}
		other := drawJob(t)
		again, err := seal(nil, &other, generated)
		if err != nil || (string(again[:markLength]) == mark) != (contentOf(again) == content) {
			t.Fatalf("%v: %q and %q", err, packed, again)
		}
		setIndex(again, 7)
		inItsRoom, err := seal(again, &job, generated)
		if err != nil {
			t.Fatal(err)
		}
		if setIndex(inItsRoom, index); !bytes.Equal(inItsRoom, packed) {
			t.Fatalf("sealed anew %q, in the room of another %q", packed, inItsRoom)
		}
	})
}

// contentOf is what the mark of a sealed job is of.
func contentOf(sealed []byte) string {
	_, content, _ := strings.Cut(string(sealed), " ")
	return content
}

func FuzzOpen(f *testing.F) {
	for _, body := range []string{"", "1 2 ", "0 5 AAAAAAAAAAAcn001 \nx", "0 5 AAAAAAAAAAAcn002~77 {}\n", "a b AAAAAAAAAAAcn001 {\n", "-1 5 AAAAAAAAAAACl001 \n"} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		job, err := open(body)
		if (err != nil) != errors.Is(err, errBody) {
			t.Errorf("error %v", err)
		}
		if err == nil && (len(job.mark) != markLength || !strings.HasSuffix(body, "\n"+string(job.payload))) {
			t.Errorf("opened %q as %+v", body, job)
		}
	})
}

func FuzzParseMeta(f *testing.F) {
	for _, text := range []string{"", "3 1 0 0 0 c ", `5 2 1 0 0 c {"cause":"poison"}`, "3 x 0 0 0 c ", "3 1 0 0 0 c {"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) { _, _ = parseMeta(text) })
}

func TestJobValidate(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*Job){
		"":              func(*Job) {},
		"9":             func(j *Job) { j.NotBefore = time.Now().Add(MaxNotBefore - time.Hour) },
		"id":            func(j *Job) { j.ID = "a.b" },
		"id ":           func(j *Job) { j.ID = strings.Repeat("a", 129) },
		"id  ":          func(j *Job) { j.ID = "a\n" },
		"flow":          func(j *Job) { j.Flow = strings.Repeat("a", 257) },
		"flow ":         func(j *Job) { j.Flow = "\xff" },
		"payload":       func(j *Job) { j.Payload = nil },
		"payload ":      func(j *Job) { j.Payload = make([]byte, 101) },
		"cost":          func(j *Job) { j.Cost = -1 },
		"cost ":         func(j *Job) { j.Cost = MaxCost + 1 },
		"delay":         func(j *Job) { j.Delay = -1 },
		"delay ":        func(j *Job) { j.Delay = MaxDelay + 1 },
		"not_before":    func(j *Job) { j.NotBefore = time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC) },
		"not_before ":   func(j *Job) { j.NotBefore = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"not_before 9":  func(j *Job) { j.NotBefore = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) },
		"not_before 10": func(j *Job) { j.NotBefore = time.Now().Add(MaxNotBefore + time.Hour) },
		"not_before  ":  func(j *Job) { j.NotBefore, j.Delay = time.Now(), 1 },
		"max_attempts":  func(j *Job) { j.MaxAttempts = -1 },
		"max_attempts ": func(j *Job) { j.MaxAttempts = MaxTries + 1 },
	} {
		job := Job{Bucket: "b", ID: strings.Repeat("a", 128), Flow: strings.Repeat("é", 128), Payload: make([]byte, 100), Cost: 1}
		change(&job)
		err := job.Validate(100)
		var fault *FieldError
		if strings.Trim(field, "9") == "" {
			if err != nil {
				t.Errorf("a valid job: %v", err)
			}
		} else if !errors.As(err, &fault) || fault.Field != strings.Trim(field, " 0123456789") {
			t.Errorf("%s: %v", field, err)
		}
	}
	all := Job{ID: "!", Flow: "\xff", Cost: -1, MaxAttempts: -1, Delay: -1}
	if err := all.Validate(1); strings.Count(err.Error(), "\n") != 5 {
		t.Errorf("not every fault is told: %v", err)
	}
}

// Ids that are made here are UUIDs of version 7: in the order of their milliseconds, and
// no two the same.
func TestNewID(t *testing.T) {
	t.Parallel()
	before := time.Now().UnixMilli()
	seen := map[string]bool{}
	for range 10_000 {
		text := newID()
		id, err := uuid.Parse(text)
		if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 || !ValidID(text) || seen[text] {
			t.Fatalf("%s: %v, version %d, variant %s, seen %t", text, err, id.Version(), id.Variant(), seen[text])
		}
		seen[text] = true
		at := int64(binary.BigEndian.Uint64(id[:8]) >> 16)
		if now := time.Now().UnixMilli(); at < before || at > now {
			t.Fatalf("%s is of %d, and it is %d", text, at, now)
		}
		before = at
	}
}
