//go:build soak

package test

import (
	"os"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
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
	now := programs
	t.Cleanup(func() { programs = now })
	const rate, jobs = 200, 2000
	quietly(t, func(t *testing.T, stall *stallWatch) string {
		programs = before
		s := start(t, redistest.Start(t), plan{rate: rate, dispatchers: 2, hold: 100 * time.Millisecond})
		s.post("upgrade", jobs)
		steps := []string{now, before, now, now}
		for step, programsThen := range steps {
			await(t, 20*time.Second, "deliveries go on", func() bool {
				return s.history.Check().Delivered >= (step+1)*jobs/(len(steps)+1)
			})
			i := step / 2 // the first one goes forth and back, the second one forth; then the first one again
			if step == len(steps)-1 {
				i = 0
			}
			s.dispatchers[i].stop(t)
			programs = programsThen
			s.dispatchers[i] = s.restart[i]()
		}
		return s.keptOn(stall, rate, jobs)
	})
}
