package lua_test

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
	r.run(lua.Configure, r.keys("conf", "body", "dead"), 1, s.revision, "", r.name, 1, "test", 0, "flows", 1,
		"flow_rate_count", f.rateCount, "flow_rate_per", cmp.Or(f.ratePer, second), "flow_burst", cmp.Or(f.burst, 1),
		"flow_capacity", f.capacity, "flow_max_in_flight", f.inFlight, "flow_quotas", f.quotas, "max_flows", cmp.Or(f.maxFlows, 1000), "max_per_caller", f.perCaller)
	r.hasFlows = true
}

var listKeys = [...]string{"q:critical:", "q:high:", "q:normal:", "q:low:"}

// places are the keys of a flow.
func (r *rig) places(flow string) []string {
	var keys []string
	for _, name := range append(listKeys[:], laterKey) {
		keys = append(keys, r.key(name)+flow)
	}
	return keys
}

// enqueueKeys are those of the script for jobs of these flows, "" where there are none.
func (r *rig) enqueueKeys(limits []string, flows ...string) []string {
	keys := r.fixed(lua.Enqueue)
	for _, limit := range limits {
		keys = append(keys, r.keys("limit:"+limit, "limit_keys", "limit:overflow")...)
	}
	for _, flow := range flows {
		keys = append(keys, r.places(flow)...)
	}
	keys = append(r.withGroups(keys, flows...), r.key("departed"), r.key("leases"))
	for _, flow := range flows {
		if r.hasFlows || r.hasGroups {
			keys = append(keys, r.key("departed:"+flow))
		}
	}
	for _, flow := range flows {
		if r.hasGroups {
			group, _ := splitPath(flow)
			keys = append(keys, r.key("departed_group:"+group))
		}
	}
	if r.pool != "" {
		keys = append(keys, r.poolKey("conf"), r.poolKey("pace"), r.poolKey("departed"))
	}
	return keys
}

// alike are the arguments of the script for jobs that are alike: what comes before the jobs.
func (r *rig) alike(limits []limit, jobs, priority int, flows ...string) (keys []string, args []any) {
	names, args := r.enqueueHead(limits, jobs, 1, flows...)
	args = append(args, priority)
	for i := range limits {
		args = append(args, i+1)
	}
	return r.enqueueKeys(names, flows...), args
}

// enqueueHead are the arguments that come first, and the names of the limits' keys.
func (r *rig) enqueueHead(limits []limit, jobs, alike int, flows ...string) (names []string, args []any) {
	hasFlows := 0
	if r.hasFlows {
		hasFlows = 1
	}
	if r.hasGroups {
		hasFlows = 2
	}
	args = []any{"tundish:wake", r.name, "", len(limits), jobs, alike, fmt.Sprint(hasFlows, "q"), len(flows)}
	if r.pool != "" {
		args[6] = fmt.Sprint(hasFlows, "qp")
	}
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
	hasFormer := slices.ContainsFunc(jobs, func(e entry) bool { return e.former != "" })
	alike := 0
	if hasFormer {
		alike = 3
	}
	names, args := r.enqueueHead(limits, len(jobs), alike, flows...)
	for n, e := range jobs {
		args = append(args, e.id, fmt.Sprintf("%s%03d%s %s\n%s", e.mark(), n+1, e.expiry(), e.header(), e.content), cmp.Or(e.priority, 3), slices.Index(flows, r.nameOf(e))+1)
		for i := range limits {
			args = append(args, i+1)
		}
		args = append(args, e.due, max(e.cost, 1), e.maxWait)
		if hasFormer {
			args = append(args, e.former)
		}
	}
	keys = r.enqueueKeys(names, flows...)
	if hasFormer {
		keys = append(keys, r.key("seen_window"))
	}
	return keys, args
}
