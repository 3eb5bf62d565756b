package scripts_test

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
)

var claimCount atomic.Int64

// nextClaim is a number of its own. All have as many digits: tests compare the bytes of jobs.
func nextClaim() int64 { return 1_000_000 + claimCount.Add(1) }

// Results of settle.lua and codes of states.
const (
	done, retry, dead, returned, wasHeld = 1, 2, 3, 4, 5

	dropped = 9

	isQueued, isScheduled, isInFlight, isRetrying = 1, 2, 3, 4
	isDead, isDone, isCancelled, isDropped        = 5, 6, 7, 8
)

// outcome ends a lease.
type outcome struct {
	lease
	result int
	delay  int64
	last   string

	signal    int // of shaper.Signal
	reason    string
	claimedAt int64
	attempt   string // a line of outcomes.lua

	head, body string // of its result
	kept       bool
	used       string // of what it has charged, "" all
	use        string // of a model: "model input output", "" nothing
	response   string // "!kind id model", "" none
	waiter     string // a channel
	callback   string // the first line of its body in Redis
}

func (r *rig) extend(length int64, leases ...lease) []int64 {
	r.t.Helper()
	args := []any{length, "d", ""}
	for _, l := range leases {
		args = append(args, l.id, l.epoch, l.claim)
	}
	reply := must.Get(lua.Integers(r.run(lua.Extend, r.keysOf(lua.Extend), args...)))(r.t)
	return reply
}

// lastChance is how many crashes put a job on its last chance: the next one,
// by the argument that sweep gets, makes it poison.
const lastChance = 2

// compare sweeps until the comparison has been through all jobs.
func (r *rig) compare() (repaired int64) {
	r.t.Helper()
	cursor := "0"
	for {
		out := r.sweep(sweep{none: true, cursor: cursor})
		repaired += out.repaired
		if cursor = out.cursor; cursor == "0" {
			return repaired
		}
	}
}

// bucket is the answer of inspect_bucket.lua.
type bucket struct {
	now, configured, revision, rateCount, ratePer, burst, capacity, scheduledCapacity, maxInFlight int64
	unfinished, waiting, later, scheduled, inFlight, dead, remembered, forgotten, oldest, lastSlot int64
	paused, unpurged, purged                                                                       int64
	hasFlows, flows, onCalendar, groups, groupsOnCalendar                                          int64

	ofPool [7]int64 // rate_count, rate_per, burst, max_in_flight, in flight, last slot, weight

	deadBytes, deadCapacity, deadMaxBytes, droppedOld, droppedFull int64

	held, open, halfOpen, disabled, eventsDropped, callbacks, firstCallback, offset, requests int64
	said, saidOfPool                                                                          string // of the downstreams of the bucket and of its pool

	quotas string // and what is left

	quotasOfPool string // the same
	by, reason   string
	hasTimes     int64
	times        [8]int64 // see timetable.view
	empty        int64
	drain        string
	overrides    string // "field configured>in force by who", joined by ", "
}

// changeable are the fields of what operators change.
var changeable = []any{"rate_count", "rate_per", "burst", "capacity", "scheduled_capacity", "max_in_flight", "dead_warn", "shed_low", "shed_normal", "shed_high"}

// answerOf reads a reply of names and values.
func (r *rig) answerOf(reply any) *lua.Answer {
	r.t.Helper()
	a := must.Get(lua.ReadAnswer(reply))(r.t)
	return a
}

// overrides are "field configured>in force by who", joined by ", ".
func (r *rig) overrides(a *lua.Answer) string {
	r.t.Helper()
	var list []string
	in := a.List("overrides")
	for in.Left() > 0 {
		field, own, value := in.Text(), in.Text(), in.Text()
		_, who, _ := strings.Cut(in.Text(), " ")
		list = append(list, fmt.Sprintf("%s %s>%s by %s", field, own, value, who))
	}
	r.ok(in.Err())
	return strings.Join(list, ", ")
}

func (r *rig) inspect() bucket {
	r.t.Helper()
	a := r.answerOf(r.run(lua.InspectBucket, r.keysOf(lua.InspectBucket, ""), append([]any{r.member()}, changeable...)...))
	b := bucket{
		now: a.Int("now"), configured: a.Int("configured"), revision: a.Int("revision"), rateCount: a.Int("rate_count"), ratePer: a.Int("rate_per"),
		burst: a.Int("burst"), capacity: a.Int("capacity"), scheduledCapacity: a.Int("scheduled_capacity"), maxInFlight: a.Int("max_in_flight"),
		unfinished: a.Int("unfinished"), waiting: a.Int("waiting"), later: a.Int("later"), scheduled: a.Int("scheduled"), inFlight: a.Int("in_flight"),
		dead: a.Int("dead"), remembered: a.Int("remembered"), forgotten: a.Int("forgotten"), lastSlot: a.Int("last_slot"), paused: a.Int("paused"),
		unpurged: a.Int("purging"), purged: a.Int("purged"), hasFlows: a.Int("levels"), flows: a.Int("flows"), onCalendar: a.Int("flows_wait"),
		groups: a.Int("groups"), groupsOnCalendar: a.Int("groups_wait"), deadBytes: a.Int("dead_bytes"), deadCapacity: a.Int("dead_capacity"),
		deadMaxBytes: a.Int("dead_max_bytes"), droppedOld: a.Int("dead_dropped_old"), droppedFull: a.Int("dead_dropped_extra"),
		held: a.Int("flows_held"), open: a.Int("flows_open"), halfOpen: a.Int("flows_half_open"), disabled: a.Int("flows_disabled"),
		eventsDropped: a.Int("events_dropped"), callbacks: a.Int("callbacks"), offset: a.Int("offset"), requests: a.Int("requests"),
		said: a.Text("downstream"), saidOfPool: a.Text("pool_downstream"), hasTimes: a.Int("timetable"), empty: a.Int("empty"), drain: a.Text("drain"),
		by: a.Text("paused_by"), reason: a.Text("paused_reason"), quotas: a.Text("quotas"), quotasOfPool: a.Text("pool_quotas"), overrides: r.overrides(a),
	}
	if age := a.Int("oldest_age"); age > 0 {
		b.oldest = b.now - age
	}
	if age := a.Int("oldest_callback_age"); age > 0 {
		b.firstCallback = b.now - age
	}
	for i, name := range []string{"rate_count", "rate_per", "burst", "max_in_flight", "in_flight", "last_slot", "weight"} {
		b.ofPool[i] = a.Int("pool_" + name)
	}
	for i, name := range []string{"open", "rate_count", "rate_per", "till", "opens", "finish", "finish_jobs", "late"} {
		b.times[i] = a.Int("hours_" + name)
	}
	return b
}

// job is the answer of inspect_job.lua; the zero value is an unknown job.
type job struct {
	state, position, instant        int64
	meta, body                      string
	now, paused                     int64
	by, reason                      string
	inFlight, maxInFlight, nextSlot int64
	quota, hasFlows                 int64
	ofFlow, ofGroup                 jobFlow
	missing                         int64     // its flow is
	quotas                          [4]string // of the bucket, the flow, the group and the pool, with what is left
	ofPool                          [4]int64  // in flight, max_in_flight, when its rate and its quotas let one leave
	attempts                        string

	offset                            int64
	bucketScope, flowScope, poolScope scopeSeen
	closed, opens                     int64

	caller string // its digits, of a settled job
}

// scopeSeen is what inspect_job.lua says of the downstream of a scope.
type scopeSeen struct {
	said               string
	rateCount, ratePer int64
}

func (r *rig) job(id string) job {
	r.t.Helper()
	flow := r.flowOf(id)
	a := r.answerOf(r.run(lua.InspectJob, r.keysOf(lua.InspectJob, flow), id, flow, r.withFlows(), r.member()))
	if a.Int("state") == 0 {
		return job{}
	}
	j := job{state: a.Int("state"), position: -1, caller: a.Text("caller")}
	if a.Text("body") == "" { // it is settled
		return j
	}
	j.position, j.instant, j.meta, j.body = a.Int("position"), a.Int("instant"), a.Text("meta"), a.Text("body")
	j.now, j.paused, j.by, j.reason = a.Int("now"), a.Int("paused"), a.Text("paused_by"), a.Text("paused_reason")
	j.inFlight, j.maxInFlight, j.nextSlot = a.Int("in_flight"), a.Int("max_in_flight"), a.Int("next_slot")
	j.quota, j.hasFlows = a.Int("quota_frees"), a.Int("levels")
	of := func(prefix string) jobFlow {
		return jobFlow{a.Int(prefix + "paused"), a.Text(prefix + "note"), a.Int(prefix + "in_flight"), a.Int(prefix + "max_in_flight"),
			a.Int(prefix + "ready"), a.Int(prefix + "quota_frees"), a.Text(prefix + "disabled")}
	}
	j.ofFlow, j.ofGroup = of("flow_"), of("group_")
	j.ofPool = [4]int64{a.Int("pool_in_flight"), a.Int("pool_max_in_flight"), a.Int("pool_ready"), a.Int("pool_quota_frees")}
	j.missing = a.Int("flow_missing")
	j.attempts, j.offset = a.Text("attempts"), a.Int("offset")
	scope := func(prefix string) scopeSeen {
		return scopeSeen{a.Text(prefix + "downstream"), a.Int(prefix + "rate_count"), a.Int(prefix + "rate_per")}
	}
	j.bucketScope, j.flowScope, j.poolScope = scope(""), scope("flow_"), scope("pool_")
	j.closed, j.opens = a.Int("closed"), a.Int("opens")
	j.quotas = [4]string{a.Text("quotas"), a.Text("flow_quotas"), a.Text("group_quotas"), a.Text("pool_quotas")}
	return j
}

// want fails unless the jobs are in these states, by id.
func (r *rig) wantStates(states map[string]int64) {
	r.t.Helper()
	for id, state := range states {
		must.Equal(r.t, r.job(id).state, state, "job %s is in state", id)
	}
}

// end runs out the leases of the jobs, as if their dispatcher had died.
func (r *rig) end(ids ...string) {
	r.t.Helper()
	for i, id := range ids {
		score := float64(r.now() - int64(len(ids)-i))
		r.ok(r.c.ZAdd(r.ctx, r.key("leases"), redis.Z{Member: id, Score: score}).Err())
	}
}

// atLength is n, or where tests shall be quick a part of it.
func atLength(n, part int64) int64 {
	if redistest.Soak {
		return n
	}
	return n / part
}

// luaReader claims and leaves the status to the test.
func luaReader(r *rig, claim string) *lua.Reader {
	r.t.Helper()
	return lua.NewReader(r.run(lua.Claim, r.keysOf(lua.Claim, ""),
		"d", claim, 1, 20_000, second, 0, lastChance, 1, expiredLast, 0, "", "tundish:wake", r.name, claimBytes, 0, 0, 0, 1))
}

// configured runs configure.lua with these fields.
func configured(r *rig, schema, revision int64, fields ...any) []int64 {
	r.t.Helper()
	reply := must.Get(lua.Integers(r.run(lua.Configure, r.keys("settings"), append([]any{schema, revision, "tundish:wake", r.name, 1, "test", 0}, fields...)...)))(r.t)
	return reply
}
