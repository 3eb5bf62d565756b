package dispatcher

import (
	"testing"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// All data is lost under a dispatcher that runs, and a producer with an old file comes first. The dispatcher writes its own settings again, and
// delivers the jobs that came meanwhile.
func TestSettingsComeBackUnderADispatcher(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 20)
	b.Limits = []admission.Limit{{Name: "l", Limit: rig.Rate("500/h")}}
	w := rig.NewWorld(t, b)
	conn := w.Server.Client()
	conf := func(field string) string { return conn.HGet(t.Context(), store.BucketKeys("b").Conf(), field).Val() }
	stop := dispatch(w, shaper.WorkerFunc(w.Note), nil)
	until(t, func() bool { return conf("owned") == "1" })
	old := rig.Bucket("b", 2000)
	old.Revision = 7
	must.OK(t, conn.FlushAll(t.Context()).Err())
	client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{old}}))(t)
	must.Get(client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "first", Payload: []byte("x")}))(t)
	until(t, func() bool { return conf("owned") == "1" && conf("rate_count") == "20" && conf("limits") != "[]" })
	w.Submit("second")
	w.Await(2)
	if err := stop(); err != nil {
		t.Error(err)
	}
}
