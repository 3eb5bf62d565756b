package dispatcher

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Jobs share what was read, faults included, and no more than so much is kept.
func TestOwnDeliveriesAreKept(t *testing.T) {
	t.Parallel()
	var kept ownDeliveries
	text := func(i int) string { return fmt.Sprintf("-\n\"https://%d.example/\"", i) }
	first, isNew, _ := kept.parse(text(0))
	if again, isNewAgain, err := kept.parse(text(0)); again != first || err != nil || !isNew || isNewAgain {
		t.Errorf("%p, then %p, %v; new: %t, %t", first, again, err, isNew, isNewAgain)
	}
	_, isNew, err := kept.parse("-\nx")
	if _, isNewAgain, again := kept.parse("-\nx"); err == nil || again == nil || !isNew || isNewAgain {
		t.Errorf("%v, then %v; new: %t, %t", err, again, isNew, isNewAgain)
	}
	for i := range 3 * maxOwnTexts {
		if own, _, err := kept.parse(text(i)); err != nil || own.URL != fmt.Sprintf("https://%d.example/", i) {
			t.Fatalf("%d: %+v, %v", i, own, err)
		}
		if len(kept.read) > maxOwnTexts {
			t.Fatalf("%d texts are kept", len(kept.read))
		}
	}
	long := "\n\"" + strings.Repeat("a", maxOwnBytes/3) + "\""
	for i := range 9 {
		if _, _, err := kept.parse(fmt.Sprint(i) + long); err != nil || kept.bytes > maxOwnBytes {
			t.Fatalf("%d bytes are kept, %v", kept.bytes, err)
		}
	}
	if own, _, err := kept.parse("-\n\"" + strings.Repeat("a", maxOwnBytes) + "\""); err != nil || own == nil || kept.bytes > maxOwnBytes {
		t.Errorf("%d bytes are kept, %v", kept.bytes, err)
	}
}

// What an operator gives a flow reaches the worker with each of its jobs, as it is at
// the claim, and with those of no other flow.
func TestOwnDeliveryReachesTheWorker(t *testing.T) {
	t.Parallel()
	w, attempts, logged, stop := flowingWorld(t)
	control := w.Client.Op.As("anna")
	var patch operator.FlowPatch
	err := errors.Join(patch.Put(shaper.FlowURL, "https://a.example/"), patch.PutHeaders(map[string]string{"X-A": "1"}), patch.PutSecrets([]string{"hunter2"}))
	must.OK(t, err)
	must.Get(control.Bucket("b").Flow("acme").Set(t.Context(), patch))(t)
	want := &shaper.OwnDelivery{URL: "https://a.example/", Headers: map[string]string{"X-A": "1"}, Secrets: []string{"hunter2"}}
	w.SubmitTo("acme", "a1", "a2")
	for range 2 {
		if a := <-attempts; a.Flow != "acme" || a.URL != "" || !reflect.DeepEqual(a.Own, want) {
			t.Errorf("%s of %q: %#v", a.ID, a.Flow, a.Own)
		}
	}
	w.SubmitTo("other", "o1")
	if a := <-attempts; a.Flow != "other" || a.Own != nil {
		t.Errorf("%s of %q: %#v", a.ID, a.Flow, a.Own)
	}
	must.OK(t, patch.Clear(shaper.FlowURL, shaper.FlowHeaders))
	must.Get(control.Bucket("b").Flow("acme").Set(t.Context(), patch))(t)
	w.SubmitTo("acme", "a3")
	if a := <-attempts; !reflect.DeepEqual(a.Own, &shaper.OwnDelivery{Secrets: []string{"hunter2"}}) {
		t.Errorf("%s: %+v", a.ID, *a.Own)
	}
	must.Get(control.Bucket("b").Flow("acme").Reset(t.Context()))(t)
	w.SubmitTo("acme", "a4")
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
	redis := w.Server.Client()
	must.OK(t, redis.HSet(t.Context(), store.BucketKeys("b").FlowSettings(), "acme", "- - - - - - -\n-\n-\n-\n[\"hunter2").Err())
	w.SubmitTo("acme", "a1", "a2")
	w.AwaitDead(2)
	for _, id := range []string{"a1", "a2"} {
		job := w.Job(id)
		if job.Attempts != 3 || job.Last.Cause != shaper.CauseExhausted || job.Last.Reason != shaper.ReasonFlowSettings || !strings.Contains(job.Last.Detail, "secrets") ||
			strings.Contains(job.Last.Detail, "hunter2") {
			t.Errorf("job %+v", job)
		}
	}
	w.SubmitTo("other", "o1") // which nothing of it concerns
	must.Equal(t, (<-attempts).ID, "o1", "was delivered")
	must.Get(w.Client.Op.As("anna").Bucket("b").Flow("acme").Reset(t.Context()))(t)
	w.SubmitTo("acme", "a3")
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
