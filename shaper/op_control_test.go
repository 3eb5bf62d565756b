package shaper

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestChangesThatDoNotFit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 100))
	control := w.client.op.Control("anna")
	for _, c := range []struct{ setting, value, want string }{
		{"rate", "0/s", "pause it"}, {"rate", "-5/s", "want 1 or more"}, {"rate", "NaN/s", "not a whole number"}, {"rate", "1000001/s", "more than 1000000"},
		{"rate", "", "want a number and a period"}, {"burst", "x", "not a whole number"}, {"name", "x", "is no setting"}, {"dedupe_window", "1h", "is no setting"},
	} {
		var p BucketPatch
		if err := p.Put(Setting(c.setting), c.value); err == nil || !strings.HasPrefix(err.Error(), c.setting+": ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.setting, c.value, err, c.want)
		}
	}
	for _, pairs := range [][]string{
		{"rate", "5 tokens/s"}, {"burst", "0"}, {"capacity", "-1"}, {"max_in_flight", "0"}, {"shed.low", "95"}, {"rate", "1/744h", "burst", "1000000"}, nil,
	} {
		_, err := control.Set(t.Context(), "b", mustPatch(t, pairs...))
		if _, ok := errors.AsType[*InvalidChangeError](err); !ok {
			t.Errorf("%v: %v", pairs, err)
		}
	}
	if _, err := control.Reset(t.Context(), "b", "name"); err == nil || !strings.Contains(err.Error(), "is no setting") {
		t.Error(err)
	}
	if err := control.Pause(t.Context(), "b", strings.Repeat("x", MaxReason+1)); err == nil || !strings.Contains(err.Error(), "at most 500 bytes") {
		t.Error(err)
	}
	if info := w.info(); len(info.Pins) != 0 || info.Pause != nil {
		t.Errorf("something was changed: %+v", info)
	}
}

// Buckets that left the configuration can be controlled, those that never were
// cannot.
func TestControlOfOtherBuckets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testBucket("b", 100))
	former, err := newActors(ClientConfig{Redis: w.server.Client(), Buckets: []Bucket{testBucket("old", 1)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := former.Enqueue(t.Context(), Job{Bucket: "old", Payload: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	control := w.client.op.Control(" anna\n" + strings.Repeat("é", 100))
	if err := control.Pause(t.Context(), "b", ""); err != nil {
		t.Fatal(err)
	}
	if by := w.info().Pause.By; len(by) > 128 || len(by) < 120 || strings.ContainsAny(by, "\n\ufffd") {
		t.Errorf("by %q", by)
	}
	for bucket, known := range map[string]bool{"old": true, "never": false, "No name": false} {
		_, setErr := control.Set(t.Context(), bucket, mustPatch(t, "capacity", "5"))
		_, resetErr := control.Reset(t.Context(), bucket)
		_, resumeErr := control.Resume(t.Context(), bucket)
		purged, purgeErr := control.Purge(t.Context(), bucket, PurgeOptions{})
		for what, err := range map[string]error{
			"pause": control.Pause(t.Context(), bucket, ""), "set": setErr, "reset": resetErr, "resume": resumeErr, "purge": purgeErr,
		} {
			if known && err != nil || !known && !errors.Is(err, ErrUnknownBucket) {
				t.Errorf("%s %q: %v", what, bucket, err)
			}
		}
		if known && purged.Jobs != 1 {
			t.Errorf("purged %+v of %q", purged, bucket)
		}
	}
}

// What a flow is given for its deliveries is for the worker to judge, whoever sets it; what a
// patch clears or does not name is not asked about.
func TestControlAsksTheWorker(t *testing.T) {
	t.Parallel()
	s := newFlowing(t)
	var asked []OwnDelivery
	op, err := NewOperator(OperatorConfig{Redis: s.redis, Buckets: []Bucket{s.bucket}, CheckFlow: func(bucket string, own *OwnDelivery) error {
		asked = append(asked, *own)
		if own.URL == "" {
			return nil
		}
		return errors.Join(&FieldError{Field: "url", Reason: "not in " + bucket}, &FieldError{Field: "secrets", Reason: "too few"})
	}})
	if err != nil {
		t.Fatal(err)
	}
	control := op.Control("anna")
	var bad, good FlowPatch
	if err := errors.Join(bad.Put(FlowURL, "https://example.com/"), bad.PutHeaders(map[string]string{"X-A": "1"}), bad.PutSecrets([]string{"whsec_x"}),
		good.Clear(FlowURL, FlowSecrets), good.Put(FlowWeight, "2")); err != nil {
		t.Fatal(err)
	}
	_, err = control.SetFlow(t.Context(), "b", "f", bad)
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

// An operator changes a pool over what configurations say, until it is taken back.
func TestControlOfAPool(t *testing.T) {
	t.Parallel()
	pool := Pool{Name: "p", Rate: perSecond(100), MaxInFlight: 5}
	w := newPoolWorld(t, pooled("b", 10, 1, pool))
	control := w.client.op.Control("anna")
	patch := func(setting Setting, value string) (p BucketPatch) {
		if err := p.Put(setting, value); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, test := range []struct {
		setting Setting
		value   string
		want    string
	}{
		{SettingRate, "20/s", "[rate 100/s → 20/s]"}, {SettingMaxInFlight, "0", "[max_in_flight 5 → 0]"}, {SettingBurst, "3", "[burst 1 → 3]"},
	} {
		if changes, err := control.SetPool(t.Context(), "p", patch(test.setting, test.value)); err != nil || fmt.Sprint(changes) != test.want {
			t.Errorf("%v, %v", changes, err)
		}
	}
	inForce := func() string {
		infos, err := w.clientOf(pooled("b", 10, 1, pool)).op.BucketInfos(t.Context()) // another process
		if err != nil {
			t.Fatal(err)
		}
		p := infos[0].Pool
		return fmt.Sprint(p.Rate, " ", p.Burst, " ", p.MaxInFlight)
	}
	w.client = w.clientOf(w.buckets...)
	w.enqueue("b", 1, nil) // its configuration is written again
	if got := inForce(); got != "20/s 3 0" {
		t.Errorf("in force: %s", got)
	}
	for _, bad := range []BucketPatch{{}, patch(SettingCapacity, "5"), patch(SettingBurst, "0"), patch(SettingBurst, "-1"), patch(SettingMaxInFlight, "-1")} {
		var invalid *InvalidChangeError
		if changes, err := control.SetPool(t.Context(), "p", bad); !errors.As(err, &invalid) {
			t.Errorf("%+v: %v, %v", bad, changes, err)
		}
	}
	for _, name := range []string{"other", "No name"} {
		if _, err := control.SetPool(t.Context(), name, patch(SettingRate, "1/s")); !errors.Is(err, ErrUnknownPool) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := control.ResetPool(t.Context(), name); !errors.Is(err, ErrUnknownPool) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := control.ResetPool(t.Context(), "p", SettingShedLow); err == nil {
		t.Error("a pool sheds")
	}
	if changes, err := control.ResetPool(t.Context(), "p"); err != nil || fmt.Sprint(changes) != "[rate 20/s → 100/s burst 3 → 1 max_in_flight 0 → 5]" {
		t.Errorf("%v, %v", changes, err)
	}
	if got := inForce(); got != "100/s 1 5" {
		t.Errorf("in force: %s", got)
	}
}
