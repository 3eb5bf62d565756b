package operator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper/internal/rig"
)

// The causes are named on a real server too, by its scripts and its clock: all at the same time, each in a database of its own. The slowest take
// half a minute, which is how long deliveries are counted.
func TestVerdictOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--databases", "64")
	open := map[string]*judged{}
	for name, c := range causes() {
		conn := must.Get(redisconn.Connect(fmt.Sprintf("redis://%s/%d", server.Addr(), len(open)), redisconn.Options{Timeout: rig.Patience}))(t)
		t.Cleanup(func() { _ = conn.Close() })
		j := judgeOn(t, conn, c.bucket)
		j.bring(c)
		open[name] = j
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	late := time.After(2 * time.Minute)
	for len(open) > 0 {
		for name, j := range open {
			c := causes()[name]
			v, waits, sum := j.readVerdict()
			// Jobs move between its reads: a look at which the numbers differ is taken again.
			if len(v.Blocked) > 0 && v.Code == c.code && v.Blocked[0].Code == c.code && v.Blocked[0].Scope == c.scope && sum == v.Waits && sum == waits {
				delete(open, name)
			}
		}
		select {
		case <-tick.C:
		case <-late:
			for name, j := range open {
				v, waits, sum := j.readVerdict()
				t.Errorf("%s: %s: %d jobs wait, the causes have %d: %s %+v", name, v.Code, waits, sum, v.Sentence(), v.Blocked)
			}
			return
		}
	}
}
