package fleet_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/tundishtest"
)

// Whom limits refuse is told by all processes together within five seconds, for ten minutes, also of a process that counts nothing more; and is told again
// where Redis came back empty.
func TestRefusedCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := tundishtest.Open(t).Redis()
		v := fleet.NewView(conn, 0)
		a, b := startProcess(t, conn, "producer", "plain"), startProcess(t, conn, "producer", "plain")
		refuse := func(p *process, caller string, n int) {
			for range n {
				p.CountLimit("plain", caller, &admission.Decision{Limit: "per-caller"})
			}
		}
		want := func(others int64, most ...fleet.Refusals) {
			t.Helper()
			got, rest := readSnapshot(t, v).Refused("per-caller")
			if diff := cmp.Diff(most, got); diff != "" || rest != others {
				t.Errorf("others %d, want %d; %s", rest, others, diff)
			}
		}
		want(0)
		refuse(a, "key:one", 3)
		refuse(b, "key:one", 2)
		refuse(b, "addr:10.0.0.1", 7)
		b.CountLimit("plain", "key:shadow", &admission.Decision{Limit: "per-caller", Allowed: true, WouldRefuse: true})
		pass(7 * time.Second)
		one, two := fleet.Refusals{Caller: "addr:10.0.0.1", Refused: 7}, fleet.Refusals{Caller: "key:one", Refused: 5}
		want(0, one, two)
		pass(5 * time.Minute)
		refuse(a, "key:one", 4)
		pass(7 * time.Second)
		two.Refused = 9
		want(0, two, one)
		if err := conn.FlushAll(t.Context()).Err(); err != nil { // its own server, which restarts without its data
			t.Fatal(err)
		}
		pass(12 * time.Second)
		want(0, two, one)
		pass(5 * time.Minute)
		two.Refused = 4
		want(0, two)
		pass(6 * time.Minute)
		want(0)
		for i := range 500 {
			refuse(a, fmt.Sprint("key:", i), 1+i%2)
		}
		refuse(a, "key:often", 50) // it comes too late to be told apart
		pass(7 * time.Second)
		most, others := readSnapshot(t, v).Refused("per-caller")
		if len(most) != 20 || most[0].Refused != 2 || others != 750+50-40 {
			t.Errorf("%d callers, others %d", len(most), others)
		}
		if _, none := readSnapshot(t, v).Refused("another"); none != 0 {
			t.Error("another limit refuses, too")
		}
	})
}
