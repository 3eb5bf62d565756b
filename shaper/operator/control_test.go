package operator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

func TestChangesThatDoNotFit(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	control := w.Client.Op.As("anna")
	for _, c := range []struct{ setting, value, want string }{
		{"rate", "0/s", "pause it"}, {"rate", "-5/s", "want 1 or more"}, {"rate", "NaN/s", "not a whole number"}, {"rate", "1000001/s", "more than 1000000"},
		{"rate", "", "want a number and a period"}, {"burst", "x", "not a whole number"}, {"name", "x", "is no setting"}, {"dedupe_window", "1h", "is no setting"},
	} {
		var p operator.BucketPatch
		if err := p.Put(shaper.Setting(c.setting), c.value); err == nil || !strings.HasPrefix(err.Error(), c.setting+": ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.setting, c.value, err, c.want)
		}
	}
	for _, pairs := range [][]string{
		{"rate", "5 tokens/s"}, {"burst", "0"}, {"capacity", "-1"}, {"max_in_flight", "0"}, {"shed.low", "101"}, {"rate", "1/744h", "burst", "1000000"}, nil,
	} {
		_, err := control.Bucket("b").Set(t.Context(), rig.MustPatch(t, pairs...))
		if _, ok := errors.AsType[*operator.InvalidChangeError](err); !ok {
			t.Errorf("%v: %v", pairs, err)
		}
	}
	if _, err := control.Bucket("b").Reset(t.Context(), "name"); err == nil || !strings.Contains(err.Error(), "is no setting") {
		t.Error(err)
	}
	if err := control.Bucket("b").Pause(t.Context(), strings.Repeat("x", operator.MaxReason+1)); err == nil || !strings.Contains(err.Error(), "at most 500 bytes") {
		t.Error(err)
	}
	if info := w.Info(); len(info.Overrides) != 0 || info.Pause != nil {
		t.Errorf("something was changed: %+v", info)
	}
}

// An unset max_in_flight rises with an override of the rate, as an override of the same author, and a reset of the rate takes it back.
func TestMaxInFlightRisesWithTheRate(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 100)
	b.MaxInFlight, b.DeliveryTimeout = 0, 15*time.Second
	w := rig.NewWorld(t, b)
	control := w.Client.Op.As("anna").Bucket("b")
	is := func(inForce int64, overrides string) {
		t.Helper()
		info := w.Info()
		var texts []string
		for _, o := range info.Overrides {
			texts = append(texts, fmt.Sprint(o.Setting, " ", o.Configured, ">", o.InForce, " by ", o.By))
		}
		if got := strings.Join(texts, ", "); info.MaxInFlight != inForce || got != overrides {
			t.Errorf("%d in flight and overrides %q, want %d and %q", info.MaxInFlight, got, inForce, overrides)
		}
	}
	set := func(pairs ...string) {
		t.Helper()
		must.Get(control.Set(t.Context(), rig.MustPatch(t, pairs...)))(t)
	}
	set("rate", "400/s")
	is(6000, "rate 100/s>400/s by anna, max_in_flight 1500>6000 by anna")
	set("rate", "10/s")
	is(1500, "rate 100/s>10/s by anna")
	must.Get(control.Reset(t.Context(), shaper.SettingRate))(t)
	is(1500, "")
}

// Buckets that left the configuration can be controlled, those that never were
// cannot.
func TestControlOfOtherBuckets(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	former := must.Get(rig.NewActors(producer.Config{Redis: w.Server.Client(), Buckets: []shaper.Bucket{rig.Bucket("old", 1)}}))(t)
	must.Get(former.Enqueue(t.Context(), shaper.Job{Bucket: "old", Payload: []byte("x")}))(t)
	control := w.Client.Op.As(" anna\n" + strings.Repeat("é", 100))
	must.OK(t, control.Bucket("b").Pause(t.Context(), ""))
	if by := w.Info().Pause.By; len(by) > 128 || len(by) < 120 || strings.ContainsAny(by, "\n\ufffd") {
		t.Errorf("by %q", by)
	}
	for bucket, known := range map[string]bool{"old": true, "never": false, "No name": false} {
		_, setErr := control.Bucket(bucket).Set(t.Context(), rig.MustPatch(t, "capacity", "5"))
		_, resetErr := control.Bucket(bucket).Reset(t.Context())
		_, resumeErr := control.Bucket(bucket).Resume(t.Context())
		purged, purgeErr := control.Bucket(bucket).Purge(t.Context(), operator.PurgeOptions{})
		for what, err := range map[string]error{
			"pause": control.Bucket(bucket).Pause(t.Context(), ""), "set": setErr, "reset": resetErr, "resume": resumeErr, "purge": purgeErr,
		} {
			if known && err != nil || !known && !errors.Is(err, shaper.ErrUnknownBucket) {
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
	s := rig.NewFlowing(t)
	var asked []shaper.OwnDelivery
	op, err := operator.New(operator.Config{Timeout: rig.Patience, Redis: s.Redis, Buckets: []shaper.Bucket{s.Bucket}, CheckFlow: func(bucket string, own *shaper.OwnDelivery) error {
		asked = append(asked, *own)
		if own.URL == "" {
			return nil
		}
		return errors.Join(&shaper.FieldError{Field: "url", Reason: "not in " + bucket}, &shaper.FieldError{Field: "secrets", Reason: "too few"})
	}})
	must.OK(t, err)
	control := op.As("anna")
	var bad, good operator.FlowPatch
	must.OK(t, errors.Join(bad.Put(shaper.FlowURL, "https://example.com/"), bad.PutHeaders(map[string]string{"X-A": "1"}), bad.PutSecrets([]string{"whsec_x"}),
		good.Clear(shaper.FlowURL, shaper.FlowSecrets), good.Put(shaper.FlowWeight, "2")))
	_, err = control.Bucket("b").Flow("f").Set(t.Context(), bad)
	if invalid, ok := errors.AsType[*operator.InvalidChangeError](err); !ok || invalid.Err.Error() != "url: not in b\nsecrets: too few" {
		t.Errorf("answered %v", err)
	}
	if info, err := control.Bucket("b").Flow("f").Info(t.Context()); err != nil || !info.Own.IsZero() {
		t.Errorf("it was set: %v, %v", info.Own, err)
	}
	if own, err := control.Bucket("b").Flow("f").Set(t.Context(), good); err != nil || *own.Weight != 2 {
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
	pool := shaper.Pool{Name: "p", Rate: rig.PerSecond(100), MaxInFlight: 5}
	w := rig.NewPoolWorld(t, rig.Pooled("b", 10, 1, pool))
	control := w.Client.Op.As("anna")
	patch := func(setting shaper.Setting, value string) (p operator.BucketPatch) {
		must.OK(t, p.Put(setting, value))
		return p
	}
	for _, test := range []struct {
		setting shaper.Setting
		value   string
		want    string
	}{
		{shaper.SettingRate, "20/s", "[rate 100/s → 20/s]"}, {shaper.SettingMaxInFlight, "0", "[max_in_flight 5 → 0]"}, {shaper.SettingBurst, "3", "[burst 1 → 3]"},
	} {
		if changes, err := control.Pool("p").Set(t.Context(), patch(test.setting, test.value)); err != nil || fmt.Sprint(changes) != test.want {
			t.Errorf("%v, %v", changes, err)
		}
	}
	inForce := func() string {
		infos, err := w.ClientOf(rig.Pooled("b", 10, 1, pool)).Op.BucketInfos(t.Context()) // another process
		must.OK(t, err)
		p := infos[0].Pool
		return fmt.Sprint(p.Rate, " ", p.Burst, " ", p.MaxInFlight)
	}
	w.Client = w.ClientOf(w.Buckets...)
	w.Enqueue("b", 1, nil) // its configuration is written again
	must.Equal(t, inForce(), "20/s 3 0", "in force")
	for _, bad := range []operator.BucketPatch{{}, patch(shaper.SettingCapacity, "5"), patch(shaper.SettingBurst, "0"), patch(shaper.SettingBurst, "-1"), patch(shaper.SettingMaxInFlight, "-1")} {
		var invalid *operator.InvalidChangeError
		if changes, err := control.Pool("p").Set(t.Context(), bad); !errors.As(err, &invalid) {
			t.Errorf("%+v: %v, %v", bad, changes, err)
		}
	}
	for _, name := range []string{"other", "No name"} {
		if _, err := control.Pool(name).Set(t.Context(), patch(shaper.SettingRate, "1/s")); !errors.Is(err, operator.ErrUnknownPool) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := control.Pool(name).Reset(t.Context()); !errors.Is(err, operator.ErrUnknownPool) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := control.Pool("p").Reset(t.Context(), shaper.SettingShedLow); err == nil {
		t.Error("a pool sheds")
	}
	if changes, err := control.Pool("p").Reset(t.Context()); err != nil || fmt.Sprint(changes) != "[rate 20/s → 100/s burst 3 → 1 max_in_flight 0 → 5]" {
		t.Errorf("%v, %v", changes, err)
	}
	must.Equal(t, inForce(), "100/s 1 5", "in force")
}
