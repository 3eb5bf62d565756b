//go:build soak

package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// TestOldConfigurationInALoop: a dispatcher and a producer with an older
// configuration start again and again, under load, ended or killed. What the newer one
// says stays in force, for them as well, and they say so.
func TestOldConfigurationInALoop(t *testing.T) {
	const rate, oldRate, restarts = 100, 1000, 5
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		server := redistest.Start(t)
		s := start(t, server, plan{rate: rate, dispatchers: 1, revision: 7})
		s.post("first", 2000)
		api := redistest.FreeAddr(t)
		old := s.rewritten("old.toml", "revision = 7", "revision = 6", fmt.Sprintf(`rate = "%d/s"`, rate), fmt.Sprintf(`rate = "%d/s"`, oldRate),
			"capacity = 100000", "capacity = 10", strings.TrimPrefix(s.api, "http://"), api)
		inForce := func(when string) {
			t.Helper()
			var view struct {
				Rate     string
				Capacity int
				Revision int
			}
			if err := json.Unmarshal([]byte(s.operate("show", bucketName, "--json")), &view); err != nil {
				t.Fatal(err)
			}
			if view.Rate != fmt.Sprintf("%d/s", rate) || view.Capacity != 100_000 || view.Revision != 7 {
				t.Errorf("%s: %+v is in force", when, view)
			}
		}
		inForce("before")
		for i := range restarts {
			d := run(t, s.ops, "dispatcher", "run", "--config", old)
			p := run(t, "http://"+api, "producer", "serve", "--config", old)
			main := s.api
			s.api = "http://" + api
			s.post(fmt.Sprint("old", i), 20) // through the old producer, which is not full at 10
			s.api = main
			s.awaitMore(10*time.Second, rate/2, "deliveries go on")
			inForce(fmt.Sprint("restart ", i+1))
			for old, text := range map[*process]string{d: "a newer configuration is in force and is obeyed", p: "the settings of this process are not those in force"} {
				if !strings.Contains(old.output.String(), text) {
					t.Errorf("an old process does not say that it obeys a newer configuration:\n%s", old.output)
				}
			}
			if i%2 == 0 {
				d.stop(t)
				p.stop(t)
			} else {
				d.kill()
				p.kill()
			}
		}
		inForce("after")
		if out := command(t, 0, "dispatcher", "bucket", "list", "--diff", "--config", old); !strings.Contains(out, "revision 7 is in force, here is 6") {
			t.Errorf("the old configuration is not told that a newer one is in force:\n%s", out)
		}
		r := s.history.Check()
		report(t, rate, r)
		t.Logf("%d restarts of an old configuration; what is called lost here waits still: more was put in than can leave", restarts)
		if r.Extra > 0 || len(r.Unexpected) > 0 {
			t.Errorf("%d came twice, unexpected %v", r.Extra, r.Unexpected)
		}
		return stall.crowded(r.MostIn, rate, spread, time.Second, 5*time.Second)
	})
}
