//go:build soak

package soak

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestOldConfigurationInALoop: a dispatcher and a producer with an older
// configuration start again and again, under load, ended or killed. What the newer one
// says stays in force, for them as well, and they say so.
func TestOldConfigurationInALoop(t *testing.T) {
	const rate, oldRate, restarts = 100, 1000, 5
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		server := redistest.Start(t)
		s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 1, Revision: 7})
		s.Post("first", 2000)
		api := redistest.FreeAddr(t)
		old := s.Rewritten("old.toml", "revision = 7", "revision = 6", fmt.Sprintf(`rate = "%d/s"`, rate), fmt.Sprintf(`rate = "%d/s"`, oldRate),
			"capacity = 100000", "capacity = 10", strings.TrimPrefix(s.API, "http://"), api)
		inForce := func(when string) {
			t.Helper()
			var view struct {
				Rate     string
				Capacity int
				Revision int
			}
			if err := json.Unmarshal([]byte(s.Operate("show", harness.BucketName, "--json")), &view); err != nil {
				t.Fatal(err)
			}
			if view.Rate != fmt.Sprintf("%d/s", rate) || view.Capacity != 100_000 || view.Revision != 7 {
				t.Errorf("%s: %+v is in force", when, view)
			}
		}
		inForce("before")
		for i := range restarts {
			d := harness.Run(t, s.Ops, "dispatcher", "run", "--config", old)
			p := harness.Run(t, "http://"+api, "producer", "serve", "--config", old)
			main := s.API
			s.API = "http://" + api
			s.Post(fmt.Sprint("old", i), 20) // through the old producer, which is not full at 10
			s.API = main
			s.AwaitMore(10*time.Second, rate/2, "deliveries go on")
			inForce(fmt.Sprint("restart ", i+1))
			for old, text := range map[*harness.Process]string{d: "a newer configuration is in force and is obeyed", p: "the settings of this process are not those in force"} {
				if !strings.Contains(old.Output.String(), text) {
					t.Errorf("an old process does not say that it obeys a newer configuration:\n%s", old.Output)
				}
			}
			if i%2 == 0 {
				d.Stop(t)
				p.Stop(t)
			} else {
				d.Kill()
				p.Kill()
			}
		}
		inForce("after")
		if out := harness.Command(t, 0, "dispatcher", "bucket", "list", "--diff", "--config", old); !strings.Contains(out, "revision 7 is in force, here is 6") {
			t.Errorf("the old configuration is not told that a newer one is in force:\n%s", out)
		}
		r := s.History.Check()
		harness.Report(t, rate, r)
		t.Logf("%d restarts of an old configuration; what is called lost here waits still: more was put in than can leave", restarts)
		if r.Extra > 0 || len(r.Unexpected) > 0 {
			t.Errorf("%d came twice, unexpected %v", r.Extra, r.Unexpected)
		}
		return stall.Crowded(r.MostIn, rate, harness.Spread, time.Second, 5*time.Second)
	})
}
