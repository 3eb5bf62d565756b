//go:build soak

package test

import (
	"cmp"
	"fmt"
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
		s.awaitDelivered(20 * time.Second)
		await(t, 10*time.Second, "everything is settled", func() bool { return s.unfinished() == 0 })
		r := s.history.Check()
		report(t, rate, r)
		switch {
		case r.Err() != nil:
			t.Fatal(r.Err())
		case r.Extra > 0:
			return fmt.Sprintf("%d jobs came twice", len(r.Duplicated))
		}
		return cmp.Or(stall.crowded(r.MostIn, rate, spread, time.Second), stall.slow(r.Rate, rate, jobs, .9))
	})
}
