package lua_test

// expiredLast is the last response of a job that has expired.
const expiredLast = `{"cause":"expired"}`

// places are the keys of a flow.
func (r *rig) places(flow string) []string {
	return r.keys("q:critical:"+flow, "q:high:"+flow, "q:normal:"+flow, "q:low:"+flow, "later:"+flow)
}

// claimKeys are those of claim.lua for these flows.
func (r *rig) claimKeys(flows ...string) []string {
	keys := r.keys("body", "meta", "conf", "pace", "leases", "claims", "dead", "count", "departed", "flows", "flow_settings", "due:")
	for _, flow := range flows {
		keys = append(append(keys, r.places(flow)...), r.key("departed:"+flow))
	}
	return keys
}
