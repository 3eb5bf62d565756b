//go:build soak

package soak

import (
	"os"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// programsBefore names a folder with the programs of another version: `go build -o FOLDER ./cmd/...` of its commit.
const programsBefore = "TUNDISH_TEST_BEFORE"

// TestRollingUpgrade: dispatchers of another version are replaced one by one by those of this one, and one of them goes back in between, under load.
// The API stays what it was. Both versions work on the same jobs all the while; nothing is lost or doubled, and the rate holds.
func TestRollingUpgrade(t *testing.T) {
	before := os.Getenv(programsBefore)
	if before == "" {
		t.Skip(programsBefore + " names no folder with the programs of another version")
	}
	now := harness.Programs
	t.Cleanup(func() { harness.Programs = now })
	const rate, jobs = 200, 2000
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		harness.Programs = before
		s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Dispatchers: 2, Hold: 100 * time.Millisecond})
		s.Post("upgrade", jobs)
		steps := []string{now, before, now, now}
		for step, programsThen := range steps {
			harness.Await(t, 20*time.Second, "deliveries go on", func() bool {
				return s.History.Check().Delivered >= (step+1)*jobs/(len(steps)+1)
			})
			i := step / 2 // the first one goes forth and back, the second one forth; then the first one again
			if step == len(steps)-1 {
				i = 0
			}
			s.Dispatchers[i].Stop(t)
			harness.Programs = programsThen
			s.Dispatchers[i] = s.Restart[i]()
		}
		return s.keptOn(stall, rate, jobs)
	})
}
