package shaper_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/shaper"
)

// What a flow has of its own neither prints nor marshals.
func TestOwnDeliveryIsWithheld(t *testing.T) {
	t.Parallel()
	attempt := &shaper.Attempt{Own: &shaper.OwnDelivery{URL: "hunter2", Headers: map[string]string{"X": "hunter2"}, Secrets: []string{"hunter2"}}}
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "attempt", attempt, "own", attempt.Own)
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "attempt", attempt, "own", attempt.Own)
	text, err := json.Marshal(attempt)
	if all := fmt.Sprintf("%v %+v %#v %v %+v %#v %s %s", attempt, attempt, attempt, attempt.Own, *attempt.Own, *attempt.Own, text, &logged); err != nil || strings.Contains(all, "hunter2") {
		t.Errorf("%s, %v", all, err)
	}
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	p := shaper.DefaultRetryPolicy()
	for attempt, want := range map[int]time.Duration{0: 5, 1: 5, 2: 10, 3: 20, 4: 40, 13: 20480, 14: 40960, 15: 43200, 16: 43200, 1000: 43200} {
		if got := p.Delay(attempt, 0, 0.999999999); got < want*time.Second-time.Second || got > want*time.Second {
			t.Errorf("attempt %d: %s, want about %ds", attempt, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := shaper.RetryPolicy{MaxAttempts: 1}
		p.MinBackoff = time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(shaper.MaxDelay)).Draw(t, "min"))
		p.MaxBackoff = time.Duration(rapid.Int64Range(int64(p.MinBackoff), int64(shaper.MaxDelay)).Draw(t, "max"))
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		after := time.Duration(rapid.Int64().Draw(t, "retry after"))
		got := p.Delay(rapid.IntRange(-1, shaper.MaxTries).Draw(t, "attempt"), after, rapid.Float64Range(0, 0.999999).Draw(t, "random"))
		if got < 0 || got > p.MaxBackoff || got < min(after, p.MaxBackoff) {
			t.Fatalf("delay %s of at most %s, asked for %s", got, p.MaxBackoff, after)
		}
	})
}

// Every wait of a schedule is obeyed within a tenth, the last one holds beyond its end, and a Retry-After is never undercut.
func TestRetryDelayBySchedule(t *testing.T) {
	t.Parallel()
	p := shaper.DefaultRetryPolicy().WithSchedule(5*time.Second, 5*time.Minute, 14*time.Hour)
	if err := p.Validate(); err != nil || p.MaxAttempts != 4 || p.MaxBackoff != 14*time.Hour+84*time.Minute {
		t.Errorf("%+v, %v", p, err)
	}
	for attempt, want := range map[int]time.Duration{
		0: 5 * time.Second, 1: 5 * time.Second, 2: 5 * time.Minute, 3: 14 * time.Hour, 4: 14 * time.Hour, 1000: 14 * time.Hour,
	} {
		if low, mean, high := p.Delay(attempt, 0, 0), p.Delay(attempt, 0, 0.5), p.Delay(attempt, 0, 0.999999999); low != want-want/10 || mean != want ||
			high <= want || high > want+want/10 {
			t.Errorf("attempt %d: %s, %s, %s, want %s and a tenth to either side", attempt, low, mean, high, want)
		}
	}
	if got := p.Delay(1, time.Hour, 0.5); got != time.Hour {
		t.Errorf("asked for an hour: %s", got)
	}
	if got := p.Delay(1, shaper.MaxDelay, 0.5); got != p.MaxBackoff {
		t.Errorf("asked for %s: %s, want %s", shaper.MaxDelay, got, p.MaxBackoff)
	}
	rapid.Check(t, func(t *rapid.T) {
		wait := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(shaper.MaxDelay)).Draw(t, "wait"))
		})
		p := shaper.DefaultRetryPolicy().WithSchedule(rapid.SliceOfN(wait, 1, 20).Draw(t, "schedule")...)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		attempt := rapid.IntRange(1, shaper.MaxTries).Draw(t, "attempt")
		after := time.Duration(rapid.Int64().Draw(t, "retry after"))
		got := p.Delay(attempt, after, rapid.Float64Range(0, 0.999999).Draw(t, "random"))
		want := p.Schedule[min(attempt, len(p.Schedule))-1]
		if got > p.MaxBackoff || got < min(after, p.MaxBackoff) || got < want-want/10 || got > max(want+want/10, after) {
			t.Fatalf("%s, want %s or %s", got, want, after)
		}
	})
}

func TestRetryPolicyValidate(t *testing.T) {
	t.Parallel()
	for fault, change := range map[string]func(*shaper.RetryPolicy){
		"":  func(*shaper.RetryPolicy) {},
		"1": func(p *shaper.RetryPolicy) { p.MaxAge, p.KeepAttempts = 0, 0 },
		"2": func(p *shaper.RetryPolicy) { p.MaxAge, p.KeepAttempts = shaper.MaxDelay, shaper.MaxKeepAttempts },
		"3": func(p *shaper.RetryPolicy) { *p = p.WithSchedule() },
		"4": func(p *shaper.RetryPolicy) { *p = p.WithSchedule(make([]time.Duration, 0, 1)...) },
		"5": func(p *shaper.RetryPolicy) { *p = p.WithSchedule(shaper.MaxDelay) },
		"retry.schedule: 0s: want waits of 1ms to 12h0m0s":            func(p *shaper.RetryPolicy) { p.Schedule = []time.Duration{time.Second, 0} },
		"retry.schedule: 13h0m0s: want waits of 1ms to 12h0m0s":       func(p *shaper.RetryPolicy) { p.Schedule = []time.Duration{13 * time.Hour} },
		"retry.schedule: 8784h0m0.000000001s: want waits":             func(p *shaper.RetryPolicy) { *p = p.WithSchedule(shaper.MaxDelay + 1) },
		"retry.schedule: has 1000 waits: want at most 999":            func(p *shaper.RetryPolicy) { p.Schedule = slices.Repeat([]time.Duration{time.Second}, 1000) },
		"retry.max_age: -1s: want 1s to 8784h0m0s, or 0s":             func(p *shaper.RetryPolicy) { p.MaxAge = -time.Second },
		"retry.max_age: 1ms: want 1s to":                              func(p *shaper.RetryPolicy) { p.MaxAge = time.Millisecond },
		"retry.max_age: 8784h0m0.000000001s: want 1s to":              func(p *shaper.RetryPolicy) { p.MaxAge = shaper.MaxDelay + 1 },
		"retry.keep_attempts: -1: want 0 to 20":                       func(p *shaper.RetryPolicy) { p.KeepAttempts = -1 },
		"retry.keep_attempts: 21: want 0 to 20":                       func(p *shaper.RetryPolicy) { p.KeepAttempts = 21 },
		"retry.max_attempts: 0: want 1 to 1000":                       func(p *shaper.RetryPolicy) { p.MaxAttempts = 0 },
		"retry.min_backoff: 0s: want 1ms to retry.max_backoff (12h0m": func(p *shaper.RetryPolicy) { p.MinBackoff = 0 },
	} {
		p := shaper.DefaultRetryPolicy()
		change(&p)
		err := p.Validate()
		if len(fault) <= 1 {
			if err != nil {
				t.Errorf("%s: %+v: %v", fault, p, err)
			}
		} else if err == nil || !strings.HasPrefix(err.Error(), fault) {
			t.Errorf("got %v, want %s", err, fault)
		}
	}
}

func TestJobValidate(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*shaper.Job){
		"":              func(*shaper.Job) {},
		"9":             func(j *shaper.Job) { j.NotBefore = time.Now().Add(shaper.MaxNotBefore - time.Hour) },
		"id":            func(j *shaper.Job) { j.ID = "a b" },
		"id ":           func(j *shaper.Job) { j.ID = strings.Repeat("a", 256) },
		"id   ":         func(j *shaper.Job) { j.ID = ".." },
		"id  ":          func(j *shaper.Job) { j.ID = "a\n" },
		"flow":          func(j *shaper.Job) { j.Flow = strings.Repeat("a", 257) },
		"flow ":         func(j *shaper.Job) { j.Flow = "\xff" },
		"payload ":      func(j *shaper.Job) { j.Payload = make([]byte, 101) },
		"cost":          func(j *shaper.Job) { j.Cost = -1 },
		"cost ":         func(j *shaper.Job) { j.Cost = shaper.MaxCost + 1 },
		"delay":         func(j *shaper.Job) { j.Delay = -1 },
		"delay ":        func(j *shaper.Job) { j.Delay = shaper.MaxDelay + 1 },
		"not_before":    func(j *shaper.Job) { j.NotBefore = time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC) },
		"not_before ":   func(j *shaper.Job) { j.NotBefore = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"not_before 9":  func(j *shaper.Job) { j.NotBefore = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) },
		"not_before 10": func(j *shaper.Job) { j.NotBefore = time.Now().Add(shaper.MaxNotBefore + time.Hour) },
		"not_before  ":  func(j *shaper.Job) { j.NotBefore, j.Delay = time.Now(), 1 },
		"max_attempts":  func(j *shaper.Job) { j.MaxAttempts = -1 },
		"max_attempts ": func(j *shaper.Job) { j.MaxAttempts = shaper.MaxTries + 1 },
	} {
		job := shaper.Job{Bucket: "b", ID: strings.Repeat("~", 255), Flow: strings.Repeat("é", 128), Payload: make([]byte, 100), Cost: 1}
		change(&job)
		err := job.Validate(100)
		var fault *shaper.FieldError
		if strings.Trim(field, "9") == "" {
			if err != nil {
				t.Errorf("a valid job: %v", err)
			}
		} else if !errors.As(err, &fault) || fault.Field != strings.Trim(field, " 0123456789") {
			t.Errorf("%s: %v", field, err)
		}
	}
	all := shaper.Job{ID: "ü", Flow: "\xff", Cost: -1, MaxAttempts: -1, Delay: -1, Payload: make([]byte, 2)}
	if err := all.Validate(1); strings.Count(err.Error(), "\n") != 5 {
		t.Errorf("not every fault is told: %v", err)
	}
}

// JSON would make other bytes of what is not UTF-8, so it is refused, and the field is named.
func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*shaper.Job){
		"url":          func(j *shaper.Job) { j.URL = "https://example.com/\xe9" },
		"method":       func(j *shaper.Job) { j.Method = "P\xffST" },
		"headers.X-A":  func(j *shaper.Job) { j.Headers = map[string][]string{"X-A": {"caf\xe9"}} },
		"headers.X-?":  func(j *shaper.Job) { j.Headers = map[string][]string{"X-\xff": {"a"}} },
		"headers.X-B":  func(j *shaper.Job) { j.Headers = map[string][]string{"X-A": {"é"}, "X-B": {"\xed\xa0\x80"}} },
		"headers.X-D":  func(j *shaper.Job) { j.Headers = map[string][]string{"X-D": {"good", "\xff"}} },
		"headers.X-C ": func(j *shaper.Job) { j.Headers = map[string][]string{"X-C": {"\xc0\x80"}} },
	} {
		job := shaper.Job{Bucket: "b", Payload: []byte("1"), URL: "https://example.com/é"}
		if err := job.Validate(1); err != nil {
			t.Fatal(err)
		}
		change(&job)
		if err := job.Validate(1); err == nil || !strings.HasPrefix(err.Error(), strings.TrimSpace(field)+": is not UTF-8") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
