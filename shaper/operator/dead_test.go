package operator_test

import (
	"errors"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/producer"
)

// Jobs of buckets that left the configuration can be read, those of buckets that never
// were cannot.
func TestOrphansAreReadable(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 100))
	conn := w.Server.Client()
	for name, b := range map[string]shaper.Bucket{"plain": rig.Bucket("old", 1), "with flows": rig.Flowing("oldflows", shaper.FlowKeyJob)} {
		former := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{b}}))(t)
		must.Get(former.Enqueue(t.Context(), shaper.Job{Bucket: b.Name, ID: "j", Flow: "acme", Payload: []byte("x")}))(t)
		want := must.Get(former.Job(t.Context(), b.Name, "j"))(t)
		got, err := w.Client.Job(t.Context(), b.Name, "j")
		if err != nil || got.State != shaper.StateQueued || got.Position != 0 || string(got.Payload) != "x" || got.Flow != want.Flow || (got.OfFlow == nil) != (want.OfFlow == nil) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
		if _, err := w.Client.Job(t.Context(), b.Name, "other"); !errors.Is(err, shaper.ErrNotFound) {
			t.Errorf("%s: a job that is not there: %v", name, err)
		}
		if dead, err := w.Client.Op.Bucket(b.Name).Dead().List(t.Context(), 0, 10); err != nil || len(dead) != 0 {
			t.Errorf("%s: dead letters %v, %v", name, dead, err)
		}
	}
	for _, name := range []string{"never", "No name", ""} {
		_, err := w.Client.Job(t.Context(), name, "j")
		_, deadErr := w.Client.Op.Bucket(name).Dead().List(t.Context(), 0, 10)
		if !errors.Is(err, shaper.ErrUnknownBucket) || !errors.Is(deadErr, shaper.ErrUnknownBucket) {
			t.Errorf("%q: %v, %v", name, err, deadErr)
		}
	}
	w.Server.Kill()
	if _, err := w.Client.Job(t.Context(), "old", "j"); err == nil || errors.Is(err, shaper.ErrUnknownBucket) {
		t.Errorf("while Redis is away: %v", err)
	}
}
