package shaper_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

func TestJobValidate(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*shaper.Job){
		"":              func(*shaper.Job) {},
		"9":             func(j *shaper.Job) { j.NotBefore = time.Now().Add(shaper.MaxNotBefore - time.Hour) },
		"id":            func(j *shaper.Job) { j.ID = "a.b" },
		"id ":           func(j *shaper.Job) { j.ID = strings.Repeat("a", 129) },
		"id  ":          func(j *shaper.Job) { j.ID = "a\n" },
		"flow":          func(j *shaper.Job) { j.Flow = strings.Repeat("a", 257) },
		"flow ":         func(j *shaper.Job) { j.Flow = "\xff" },
		"payload":       func(j *shaper.Job) { j.Payload = nil },
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
		job := shaper.Job{Bucket: "b", ID: strings.Repeat("a", 128), Flow: strings.Repeat("é", 128), Payload: make([]byte, 100), Cost: 1}
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
	all := shaper.Job{ID: "!", Flow: "\xff", Cost: -1, MaxAttempts: -1, Delay: -1}
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
