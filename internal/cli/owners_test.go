package cli_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
)

// A process whose file differs from what a dispatcher wrote changes nothing, and is named: in the list of differences, in the notes, and in the
// API. Where this very process has the other file, it is said who wrote what is in force.
func TestProcessesThatDisagreeAreNamed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newPlan(t, server.URL(), "rate = \"100/s\"\ncapacity = 50\n")
	s := &site{redis: server.Client(), env: p.env}
	first := start(t, p.env, "dispatcher run")
	first.ready(t, p.ops)
	me := redisconn.ProcessName()
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "written     by "+me+", which started or reloaded")
	s.run(t, "dispatcher bucket list --diff").want(t, 0)

	// Another dispatcher starts, with a file that says otherwise.
	b := bucket(t, "webhooks")
	b.Capacity, b.Rate.Count, b.MaxInFlight = 40, 70, 1500
	d := must.Get(dispatcher.New(dispatcher.Config{Redis: server.Client(), Buckets: []shaper.Bucket{b}, Workers: map[string]shaper.Worker{"webhooks": shaper.WorkerFunc(nil)}}))(t)
	must.OK(t, d.JoinPools(t.Context()))
	key := stored.Key("webhooks", "")
	other := "producer 815 on " + fmt.Sprint("web-", os.Getpid())
	now := server.Client().Time(t.Context()).Val().UnixMicro()
	noted := fmt.Sprintf(`%d [{"setting":"rate","here":"9/s","in_force":"70/s"}]`, now)
	must.OK(t, server.Client().HSet(t.Context(), key+"differing", other, noted, "one that ended", strings.Replace(noted, fmt.Sprint(now), "5", 1)).Err())
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "changed     rate 100/s → 70/s", "changed     capacity 50 → 40", "by "+me,
		"differs     rate is 70/s, not 100/s: this process wrote", "differs     rate is 70/s, not 9/s: "+other+" has it so", "note        "+other+" has other settings")
	out := s.run(t, "dispatcher bucket list --diff")
	out.want(t, 0, "webhooks  rate      100/s       70/s      this process wrote what is in force", "webhooks  capacity  50          40 ", "webhooks  rate      9/s         70/s      "+other)
	if strings.Contains(out.out, "one that ended") {
		t.Errorf("a process that ended is named:\n%s", out.out)
	}
	s.run(t, "dispatcher bucket list").want(t, 0, "differs from the configuration here, see bucket list --diff; "+other+" has other settings: see bucket list --diff")
	s.run(t, "dispatcher bucket show webhooks --json").want(t, 0, `"process": "`+other+`"`, `"written": {`, `"setting_changes": [`)
	s.run(t, "dispatcher bucket set webhooks --rate 60/s").want(t, 0)
	s.run(t, "dispatcher bucket reset webhooks").want(t, 0)
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "changed     rate 70/s → 60/s", " by user ", "changed     rate 60/s → 70/s", " (set)", " (reset)")
	must.Equal(t, first.end(), 0, "the exit code is")
}
