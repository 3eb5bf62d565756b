package scripts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
)

// encodings are the forms in which the server keeps keys of the bucket.
func (r *rig) encodings(names ...string) (found []string) {
	r.t.Helper()
	for _, name := range names {
		encoding := must.Get(r.c.ObjectEncoding(r.ctx, r.key(name)).Result())(r.t)
		found = append(found, name+" "+encoding)
	}
	return found
}

// Also when a call of many jobs brings many groups at once.
func TestTablesAfterALargeCall(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, r *rig) {
		r.configureGroups(settings{}, flowSettings{maxFlows: 1000}, flowSettings{})
		var jobs []entry
		for i := range 40 {
			jobs = append(jobs, entry{id: fmt.Sprint("j", i), group: fmt.Sprint("g", i), flow: "f"})
		}
		r.enqueue(nil, jobs...)
		want := fmt.Sprint([]string{"flows hashtable", "groups hashtable", "due_groups skiplist"})
		must.Equal(t, fmt.Sprint(r.encodings("flows", "groups", "due_groups")), want, "the server keeps")
	})
}

// What a claim looks up is in a table when there are more than a few jobs, and is one again after the server has read its data
// from a file. The server searches a small hash from its beginning.
func TestTablesNotLists(t *testing.T) {
	t.Parallel()
	onReal(t, func(t *testing.T, r *rig) {
		const jobs = 40
		r.configureGroups(settings{}, flowSettings{maxFlows: 1000}, flowSettings{})
		for i := range 2 * jobs {
			r.putIn(path(fmt.Sprint("g", i), "f"), 3, 0, fmt.Sprint("j", i))
		}
		for leased := 0; leased < jobs; r.pass(50_000) {
			leased += len(r.drain(ask{want: 10}).jobs)
		}
		want := fmt.Sprint([]string{"meta hashtable", "flows hashtable", "groups hashtable", "leases skiplist"})
		must.Equal(t, fmt.Sprint(r.encodings("meta", "flows", "groups", "leases")), want, "the server keeps")
		for _, name := range []string{"meta", "flows", "groups", "leases"} {
			dumped := must.Get(r.c.Dump(r.ctx, r.key(name)).Result())(r.t)
			r.ok(r.c.RestoreReplace(r.ctx, r.key(name), 0*time.Second, dumped).Err())
		}
		if got := fmt.Sprint(r.encodings("meta", "leases")); got != fmt.Sprint([]string{"meta listpack", "leases listpack"}) {
			t.Errorf("after it has read its data the server keeps %s", got)
		}
		r.sweep(sweep{cursor: "0"})
		want = fmt.Sprint([]string{"meta hashtable", "flows hashtable", "groups hashtable", "leases skiplist", "due_groups skiplist"})
		must.Equal(t, fmt.Sprint(r.encodings("meta", "flows", "groups", "leases", "due_groups")), want, "after a look at everything the server keeps")
	})
}
