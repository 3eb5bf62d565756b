package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// Results come by the time at which they are dropped, the last ones first, without their bodies, and no more bytes are read than is asked for.
func TestInspectResults(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const at = 1_700_000_000_123_456
		for i, id := range []string{"a", "b", "c", "d"} {
			r.hset("results", id, "head "+id+"\n"+strings.Repeat("x\n", 50))
			r.zadd("result_ends", id, at+int64(max(i, 1))) // a and b share one
		}
		r.hdel("results", "c")
		for _, c := range []struct {
			from       any
			skip, most int
			bytes      int
			want       string
		}{
			{"+inf", 0, 10, 1 << 20, "321: d 59 head d, c 58 , b 57 head b, a 57 head a"},
			{"+inf", 0, 2, 1 << 20, "107: d 59 head d, c 58 "},
			{at + 1, 1, 10, 1 << 20, "107: a 57 head a"},
			{at + 1, 2, 10, 1 << 20, "0: "},
			{"+inf", 0, 10, 1, "107: d 59 head d"},
			{at + 1, 0, 10, 214, "214: b 57 head b, a 57 head a"},
			{at + 1, 0, 10, 213, "107: b 57 head b"},
		} {
			in := lua.NewReader(r.run(lua.InspectResults, r.keys("results", "result_ends"), c.from, c.skip, c.most, c.bytes))
			bytes, rows := in.Int(), []string{}
			for in.Left() > 0 {
				id, ends, head := in.Text(), in.Text(), in.Text()
				rows = append(rows, fmt.Sprint(id, " ", ends[len(ends)-2:], " ", head))
			}
			r.ok(in.Err())
			must.Equal(t, fmt.Sprint(bytes, ": ", strings.Join(rows, ", ")), c.want, "from %v, skip %d, most %d, bytes %d", c.from, c.skip, c.most, c.bytes)
		}
	})
}
