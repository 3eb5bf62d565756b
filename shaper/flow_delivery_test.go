package shaper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseOwnDelivery(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*OwnDelivery{
		"":                             nil,
		"-":                            nil,
		`{"by":"anna"}`:                nil,
		"-\n-\n-\n-":                   nil,
		"-\n\"\"\n{}\n[]":              nil,
		"not JSON\n-\n-\n-":            nil, // the note of a pause is not for deliveries
		"-\n\"https://a.example/\"":    {URL: "https://a.example/"},
		"-\n-\n{\"X-A\":\"1\"}\n-":     {Headers: map[string]string{"X-A": "1"}},
		"-\n-\n-\n[\"s1\",\"s2\"]\n{}": {Secrets: []string{"s1", "s2"}}, // and a line of a later version
	} {
		if own, err := parseOwnDelivery(text); err != nil || !reflect.DeepEqual(own, want) {
			t.Errorf("%q: %#v, %v", text, own, err)
		}
	}
	for _, text := range []string{
		"-\nhunter2", "-\n{\"hunter2\":1}", "-\n-\n[\"hunter2\"]", "-\n-\n{\"X\":{\"hunter2\":1}}", "-\n-\n-\nhunter2", "-\n-\n-\n\"hunter2\"", "-\n-\n-\n[\"hunter2",
		"-\n\n\n",
	} {
		if own, err := parseOwnDelivery(text); err == nil || own != nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %#v, %v", text, own, err)
		}
	}
}

// What a flow has of its own neither prints nor marshals.
func TestOwnDeliveryIsWithheld(t *testing.T) {
	t.Parallel()
	attempt := &Attempt{Own: &OwnDelivery{URL: "hunter2", Headers: map[string]string{"X": "hunter2"}, Secrets: []string{"hunter2"}}}
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "attempt", attempt, "own", attempt.Own)
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "attempt", attempt, "own", attempt.Own)
	text, err := json.Marshal(attempt)
	if all := fmt.Sprintf("%v %+v %#v %v %+v %#v %s %s", attempt, attempt, attempt, attempt.Own, *attempt.Own, *attempt.Own, text, &logged); err != nil || strings.Contains(all, "hunter2") {
		t.Errorf("%s, %v", all, err)
	}
}

// Jobs share what was read, faults included, and no more than so much is kept.
func TestOwnDeliveriesAreKept(t *testing.T) {
	t.Parallel()
	var kept ownDeliveries
	text := func(i int) string { return fmt.Sprintf("-\n\"https://%d.example/\"", i) }
	first, isNew, _ := kept.of(text(0))
	if again, isNewAgain, err := kept.of(text(0)); again != first || err != nil || !isNew || isNewAgain {
		t.Errorf("%p, then %p, %v; new: %t, %t", first, again, err, isNew, isNewAgain)
	}
	_, isNew, err := kept.of("-\nx")
	if _, isNewAgain, again := kept.of("-\nx"); err == nil || again == nil || !isNew || isNewAgain {
		t.Errorf("%v, then %v; new: %t, %t", err, again, isNew, isNewAgain)
	}
	for i := range 3 * maxOwnTexts {
		if own, _, err := kept.of(text(i)); err != nil || own.URL != fmt.Sprintf("https://%d.example/", i) {
			t.Fatalf("%d: %+v, %v", i, own, err)
		}
		if len(kept.read) > maxOwnTexts {
			t.Fatalf("%d texts are kept", len(kept.read))
		}
	}
	long := "\n\"" + strings.Repeat("a", maxOwnBytes/3) + "\""
	for i := range 9 {
		if _, _, err := kept.of(fmt.Sprint(i) + long); err != nil || kept.bytes > maxOwnBytes {
			t.Fatalf("%d bytes are kept, %v", kept.bytes, err)
		}
	}
	if own, _, err := kept.of("-\n\"" + strings.Repeat("a", maxOwnBytes) + "\""); err != nil || own == nil || kept.bytes > maxOwnBytes {
		t.Errorf("%d bytes are kept, %v", kept.bytes, err)
	}
}

// flowingWorld is a bucket with flows on a real server, whose dispatcher gives its
// attempts to the channel and its log to the buffer.
func flowingWorld(t *testing.T) (w *world, attempts chan *Attempt, logged *bytes.Buffer, stop func() error) {
	t.Helper()
	b := testBucket("b", 1000)
	flow := DefaultFlowSettings()
	flow.Key = FlowKeyJob
	b.Flow = &flow
	b.Retry = RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}
	w = newWorld(t, b)
	if err := w.client.JoinPools(t.Context()); err != nil {
		t.Fatal(err)
	}
	attempts, logged = make(chan *Attempt, 100), &bytes.Buffer{}
	stop = w.dispatch(WorkerFunc(func(_ context.Context, a *Attempt) Outcome { attempts <- a; return Done(200) }), func(cfg *DispatcherConfig) {
		cfg.Logger = slog.New(slog.NewTextHandler(logged, nil)) // which locks
	})
	return w, attempts, logged, stop
}

func (w *world) submitTo(flow string, ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		receipts, err := w.client.Enqueue(w.t.Context(), Job{Bucket: "b", ID: id, Flow: flow, Payload: []byte("x")})
		if err != nil || receipts[0].Refusal != nil {
			w.t.Fatalf("enqueue %s: %+v, %v", id, receipts, err)
		}
	}
}

// awaitDead waits until so many jobs are dead.
func (w *world) awaitDead(n int) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		dead, err := w.client.op.DeadLetters(w.t.Context(), "b", 0, n)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(dead) == n {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("dead letters: %+v", dead)
		}
	}
}

// What an operator gives a flow reaches the worker with each of its jobs, as it is at
// the claim, and with those of no other flow.
func TestOwnDeliveryReachesTheWorker(t *testing.T) {
	t.Parallel()
	w, attempts, logged, stop := flowingWorld(t)
	control := w.client.op.Control("anna")
	var patch FlowPatch
	err := errors.Join(patch.Put(FlowURL, "https://a.example/"), patch.PutHeaders(map[string]string{"X-A": "1"}), patch.PutSecrets([]string{"hunter2"}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := control.SetFlow(t.Context(), "b", "acme", patch); err != nil {
		t.Fatal(err)
	}
	want := &OwnDelivery{URL: "https://a.example/", Headers: map[string]string{"X-A": "1"}, Secrets: []string{"hunter2"}}
	w.submitTo("acme", "a1", "a2")
	for range 2 {
		if a := <-attempts; a.Flow != "acme" || a.URL != "" || !reflect.DeepEqual(a.Own, want) {
			t.Errorf("%s of %q: %#v", a.ID, a.Flow, a.Own)
		}
	}
	w.submitTo("other", "o1")
	if a := <-attempts; a.Flow != "other" || a.Own != nil {
		t.Errorf("%s of %q: %#v", a.ID, a.Flow, a.Own)
	}
	if err := patch.Clear(FlowURL, FlowHeaders); err != nil {
		t.Fatal(err)
	}
	if _, err := control.SetFlow(t.Context(), "b", "acme", patch); err != nil {
		t.Fatal(err)
	}
	w.submitTo("acme", "a3")
	if a := <-attempts; !reflect.DeepEqual(a.Own, &OwnDelivery{Secrets: []string{"hunter2"}}) {
		t.Errorf("%s: %+v", a.ID, *a.Own)
	}
	if _, err := control.DeleteFlowSettings(t.Context(), "b", "acme"); err != nil {
		t.Fatal(err)
	}
	w.submitTo("acme", "a4")
	if a := <-attempts; a.Own != nil {
		t.Errorf("%s: %#v", a.ID, a.Own)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if strings.Contains(logged.String(), "hunter2") {
		t.Errorf("a secret was logged: %s", logged)
	}
}

// Jobs of a flow whose settings nobody can read are not sent and tell why, until the
// settings are mended.
func TestUnreadableFlowSettings(t *testing.T) {
	t.Parallel()
	w, attempts, logged, stop := flowingWorld(t)
	redis := w.server.Client()
	if err := redis.HSet(t.Context(), bucketKeys("b").flowSettings(), "acme", "- - - - - - -\n-\n-\n-\n[\"hunter2").Err(); err != nil {
		t.Fatal(err)
	}
	w.submitTo("acme", "a1", "a2")
	w.awaitDead(2)
	for _, id := range []string{"a1", "a2"} {
		job := w.job(id)
		if job.Attempts != 3 || job.Last.Cause != CauseExhausted || job.Last.Reason != ReasonFlowSettings || !strings.Contains(job.Last.Detail, "secrets") ||
			strings.Contains(job.Last.Detail, "hunter2") {
			t.Errorf("job %+v", job)
		}
	}
	w.submitTo("other", "o1") // which nothing of it concerns
	if a := <-attempts; a.ID != "o1" {
		t.Errorf("%s was delivered", a.ID)
	}
	if _, err := w.client.op.Control("anna").DeleteFlowSettings(t.Context(), "b", "acme"); err != nil {
		t.Fatal(err)
	}
	w.submitTo("acme", "a3")
	if a := <-attempts; a.ID != "a3" || a.Own != nil {
		t.Errorf("%s was delivered with %#v", a.ID, a.Own)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if text := logged.String(); strings.Count(text, "cannot be read") != 1 || strings.Contains(text, "hunter2") {
		t.Errorf("logged %s", text)
	}
}

// What a flow is given for its deliveries is for the worker to judge, whoever sets it; what a
// patch clears or does not name is not asked about.
func TestControlAsksTheWorker(t *testing.T) {
	t.Parallel()
	s := newFlowing(t)
	var asked []OwnDelivery
	s.client.op.checkFlow = func(bucket string, own *OwnDelivery) error {
		asked = append(asked, *own)
		if own.URL == "" {
			return nil
		}
		return errors.Join(&FieldError{Field: "url", Reason: "not in " + bucket}, &FieldError{Field: "secrets", Reason: "too few"})
	}
	control := s.client.op.Control("anna")
	var bad, good FlowPatch
	if err := errors.Join(bad.Put(FlowURL, "https://example.com/"), bad.PutHeaders(map[string]string{"X-A": "1"}), bad.PutSecrets([]string{"whsec_x"}),
		good.Clear(FlowURL, FlowSecrets), good.Put(FlowWeight, "2")); err != nil {
		t.Fatal(err)
	}
	_, err := control.SetFlow(t.Context(), "b", "f", bad)
	if invalid, ok := errors.AsType[*InvalidChangeError](err); !ok || invalid.Err.Error() != "url: not in b\nsecrets: too few" {
		t.Errorf("answered %v", err)
	}
	if info, err := control.Flow(t.Context(), "b", "f"); err != nil || !info.Own.IsZero() {
		t.Errorf("it was set: %v, %v", info.Own, err)
	}
	if own, err := control.SetFlow(t.Context(), "b", "f", good); err != nil || *own.Weight != 2 {
		t.Errorf("%v, %v", own, err)
	}
	if len(asked) != 2 || asked[0].URL != "https://example.com/" || asked[0].Headers["X-A"] != "1" || asked[0].Secrets[0] != "whsec_x" ||
		asked[1].URL != "" || asked[1].Headers != nil || asked[1].Secrets != nil {
		t.Errorf("the worker was asked %d times", len(asked))
	}
}
