package scripts_test

import (
	"fmt"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// disabledDeaths runs disabled_deaths.lua until it has seen all dead letters, and returns the times of the flow, from began on.
func (r *rig) disabledDeaths(flow string, atMost int, began int64) (spans []int64, calls int) {
	r.t.Helper()
	for calls = 1; ; calls++ {
		in := lua.NewReader(r.run(lua.DisabledDeaths, r.keysOf(lua.DisabledDeaths), flow, r.withFlows(), "flow-disabled", atMost, 1<<20))
		more := in.Int()
		spans = nil
		for in.Left() > 0 {
			spans = append(spans, in.Int()-began)
		}
		r.ok(in.Err())
		if more == 0 {
			return spans, calls
		}
	}
}

// When the letters of a flow died is found out by looking at each letter once.
func TestDisabledDeaths(t *testing.T) {
	disabling(t, func(t *testing.T, r *rig, flow, other string) {
		began := r.now()
		die := func(id, flow, cause string, after int64) {
			t.Helper()
			r.place(placed{id: id, flow: flow, state: isDead})
			if r.withFlows() == 2 { // place names the flow alone
				r.hset("body", id, fmt.Sprintf(`1 1 00000000000cn001 {"f":%q,"g":"g"}`+"\npayload", flow[len("1:g"):]))
			}
			r.hset("meta", id, fmt.Sprintf(`5 1 0 0 0 c {"cause":%q,"status":410}`, cause))
			r.zadd("dead", id, began+after)
		}
		want := func(spans string, calls, atMost int) {
			t.Helper()
			for i := range 2 { // sent twice it comes to the same
				got, n := r.disabledDeaths(flow, atMost, began)
				if fmt.Sprint(got) != spans || i == 0 && n != calls || i == 1 && n != 1 {
					t.Errorf("%v in %d calls, want %s in %d", got, n, spans, calls)
				}
			}
		}
		want("[]", 1, 2)
		die("a2", flow, "flow-disabled", 0)
		die("a1", flow, "flow-disabled", 0)
		die("a3", flow, "flow-disabled", 0)
		die("a4", flow, "flow-disabled", 40_000) // the next chunk
		die("b1", other, "flow-disabled", 100_000)
		die("a5", flow, "permanent", 200_000)
		die("a6", flow, "flow-disabled", 5*second)
		want(fmt.Sprint([]int64{0, 40_000, 5 * second, 5 * second}), 6, 2)
		if got, n := r.disabledDeaths(other, 2, began); n != 1 || fmt.Sprint(got) != "[100000 100000]" {
			t.Errorf("of the other flow %v in %d calls", got, n)
		}
		die("b2", other, "flow-disabled", 6*second)
		die("a7", flow, "flow-disabled", 7*second)
		want(fmt.Sprint([]int64{0, 40_000, 5 * second, 5 * second, 7 * second, 7 * second}), 1, 9)

		// The clock stepped back: a letter has died before the last one that was looked at.
		die("a8", flow, "flow-disabled", 2*second)
		r.hset("pace", "offset", 3*second)
		want(fmt.Sprint([]int64{0, 40_000, 2 * second, 2 * second, 5 * second, 5 * second, 7 * second, 7 * second}), 2, 9)

		// Times before the oldest letter are forgotten when the next one comes, and 16 are kept.
		for _, id := range []string{"a1", "a2", "a3", "a4", "a5", "a8", "b1"} {
			r.zrem("dead", id)
		}
		for i := range int64(20) {
			die(fmt.Sprint("c", i), flow, "flow-disabled", (10+i)*second)
		}
		got, _ := r.disabledDeaths(flow, 9, began)
		if len(got) != 32 || got[0] != 5*second || got[30] != 23*second || got[31] != 29*second {
			t.Errorf("the spans are %v", got)
		}

		// Flows whose letters are gone are forgotten with all others, if they are many.
		fields := map[string]any{}
		for i := range 1100 {
			fields[path("g", fmt.Sprint("gone", i))] = "1-2"
		}
		r.hset("disabled_deaths", fields)
		if again, _ := r.disabledDeaths(flow, 9, began); fmt.Sprint(again) != fmt.Sprint(got) {
			t.Errorf("begun anew, the spans are %v", again)
		}
		must.Equal(t, r.hlen("disabled_deaths"), 2, "flows are known")
	})
}
