package scripts_test

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/lua"
)

// flowSettings are those of the flows of a bucket, or of one; 0 means none, but for the
// burst and the number of flows.
type flowSettings struct {
	rateCount, ratePer, burst, capacity, inFlight, maxFlows, perCaller int64

	quotas         string
	weight, paused int64 // of one flow
}

// configureFlows writes the settings of a bucket that is parted into flows.
func (r *rig) configureFlows(s settings, f flowSettings) {
	r.t.Helper()
	r.configure(s)
	r.run(lua.Configure, r.keys("settings", "body", "dead"), 1, s.revision, "", r.name, 1, "test", 0, "flows", 1,
		"flow_rate_count", f.rateCount, "flow_rate_per", cmp.Or(f.ratePer, second), "flow_burst", cmp.Or(f.burst, 1),
		"flow_capacity", f.capacity, "flow_max_in_flight", f.inFlight, "flow_quotas", f.quotas, "max_flows", cmp.Or(f.maxFlows, 1000), "max_per_caller", f.perCaller)
	r.hasFlows = true
}

var listKeys = [...]string{"q:critical:", "q:high:", "q:normal:", "q:low:"}

// alike are the arguments of the script for jobs that are alike: what comes before the jobs.
func (r *rig) alike(limits []limit, jobs, priority int, flows ...string) (keys []string, args []any) {
	names, args := r.enqueueHead(limits, jobs, 1, flows...)
	args = append(args, priority)
	for i := range limits {
		args = append(args, i+1)
	}
	keys, _ = r.enqueueKeys(names, flows...)
	return keys, args
}

// enqueueHead are the arguments that come first, and the names of the limits' keys.
func (r *rig) enqueueHead(limits []limit, jobs, alike int, flows ...string) (names []string, args []any) {
	_, told := r.enqueueKeys(nil, flows...)
	args = []any{"tundish:wake", r.name, "", len(limits), jobs, alike, fmt.Sprint(r.names().Levels, told), len(flows)}
	for _, flow := range flows {
		args = append(args, flow)
	}
	for _, l := range limits {
		names = append(names, l.key)
		args = append(args, l.args()...)
	}
	for _, l := range limits {
		args = append(args, l.shadow)
	}
	return names, args
}

// enqueueArgs are the keys and arguments for jobs that are decided one by one.
func (r *rig) enqueueArgs(limits []limit, jobs []entry) (keys []string, args []any) {
	flows := []string{}
	for _, e := range jobs {
		if !slices.Contains(flows, r.nameOf(e)) {
			flows = append(flows, r.nameOf(e))
		}
	}
	names, args := r.enqueueHead(limits, len(jobs), 0, flows...)
	for n, e := range jobs {
		args = append(args, e.id, fmt.Sprintf("%s%03d%s %s\n%s", e.mark(), n+1, e.expiry(), e.header(), e.content), cmp.Or(e.priority, 3), slices.Index(flows, r.nameOf(e))+1)
		for i := range limits {
			args = append(args, i+1)
		}
		args = append(args, e.due, max(e.cost, 1), e.maxWait)
	}
	keys, _ = r.enqueueKeys(names, flows...)
	return keys, args
}
