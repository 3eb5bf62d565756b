package operator_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
)

// A change of a flow is logged with bucket and flow. What changes nothing is no line, and a reset tells that an override went.
func TestChangesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	bucket := rig.Flowing("b", shaper.FlowKeyJob)
	w := rig.NewWorld(t, bucket)
	var log bytes.Buffer
	op, err := operator.New(operator.Config{Timeout: rig.Patience, Redis: w.Server.Client(), Buckets: []shaper.Bucket{bucket}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must.OK(t, err)
	b := op.As("anna").Bucket("b")
	is := func(what string, err error, want string) {
		t.Helper()
		must.OK(t, err)
		if _, got, _ := strings.Cut(strings.TrimSpace(log.String()), "msg="); got != want {
			t.Errorf("%s: logged is %q, want %q", what, got, want)
		}
		log.Reset()
	}
	var patch operator.FlowPatch
	must.OK(t, patch.Put(shaper.FlowWeight, "3"))
	_, err = b.Flow("f").Set(t.Context(), patch)
	is("set", err, `"an operator changed a flow" bucket=b action=set by=anna flow=f settings=weight`)
	_, err = b.Flow("f").Set(t.Context(), patch)
	is("set again", err, "")
	_, err = b.Flow("f").Enable(t.Context())
	is("enable what is enabled", err, "")
	_, err = b.Flow("f").Resume(t.Context())
	is("resume what runs", err, "")
	_, err = b.Resume(t.Context())
	is("resume a bucket that runs", err, "")
	_, err = b.Set(t.Context(), rig.MustPatch(t, "burst", "1"))
	is("an override as configured", err, `"an operator changed a bucket" bucket=b action=set by=anna changes="burst 1 → 1"`)
	changes, err := b.Reset(t.Context())
	is("it is reset", err, `"an operator changed a bucket" bucket=b action=reset by=anna changes="burst 1 → 1"`)
	must.Equal(t, len(changes), 1, "the reset changed %v", changes)
	_, err = b.Reset(t.Context())
	is("nothing to reset", err, "")
}
