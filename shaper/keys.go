package shaper

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/tundish-io/tundish/admission"
)

// wakeChannel carries the names of buckets that have something to send sooner
// than their dispatchers may think.
const wakeChannel = "tundish:wake"

// wakePool and a pool's name stand there for all its buckets. No bucket's name has a colon.
const wakePool = "pool:"

// wakeOne stands there for one dispatcher of a bucket: the one that a claim names. No bucket's name has a space.
func wakeOne(bucket, dispatcher string) string { return bucket + " " + dispatcher }

// tagsKey is the index: the hash tag of every bucket there ever was, which is its name or that of its pool.
// See lua/assign.lua.
const tagsKey = "tundish:buckets"

// keys makes the names of a bucket's keys. This file is the only place that
// does. All of them share the tag, so that a bucket lives in one slot of a
// cluster, and none has a TTL: they are the bucket. They hold what is
// unfinished, what is dead until an operator drops it, and ids that expire by
// their dedupe window.
//
// A script on a bucket whose flows are in groups touches more keys, and so does one on
// a bucket in a pool: so these know its levels and its pool.
type keys struct {
	prefix string
	levels int
	member string // what scripts are told: the bucket's name where it is in a pool, else ""
	pool   string // the pool's name, "" in none
}

// bucketKeys are those of a bucket that is in no pool.
func bucketKeys(bucket string) keys { return taggedKeys(bucket, bucket) }

// taggedKeys are those of a bucket with that tag: its own name, or that of its pool. A
// bucket cannot be in a pool of its own name.
func taggedKeys(tag, bucket string) keys {
	k := keys{prefix: fmt.Sprintf("tundish:{%s}:b:%s:", tag, bucket)}
	if tag != bucket {
		k.member, k.pool = bucket, tag
	}
	return k
}

// as are the same of a bucket that is parted so.
func (k keys) as(levels int) keys {
	k.levels = levels
	return k
}

// tag is theirs, of that bucket.
func (k keys) tag(bucket string) string { return cmp.Or(k.pool, bucket) }

func poolPrefix(pool string) string { return fmt.Sprintf("tundish:{%s}:p:%s:", pool, pool) }

// poolConf, poolPace and poolBuckets are keys of a pool.
func poolConf(pool string) string    { return poolPrefix(pool) + "conf" }
func poolPace(pool string) string    { return poolPrefix(pool) + "pace" }
func poolBuckets(pool string) string { return poolPrefix(pool) + "buckets" }

// inPool are keys of a script and, of a bucket in a pool, those of the pool, as
// lua/pool.lua wants them.
func (k keys) inPool(names []string) []string {
	if k.pool == "" {
		return names
	}
	prefix := poolPrefix(k.pool)
	return append(names, prefix+"conf", prefix+"pace", prefix+"departed", prefix+"buckets", prefix+"busy", prefix+"held", prefix+"gaps")
}

func (k keys) conf() string { return k.prefix + "settings" }

// confBefore is the conf of a bucket whose data has schema 1. Since schema 2 it holds the schema alone: see lua/configure.lua.
func (k keys) confBefore() string { return k.prefix + "conf" }

// confAside is the conf of a bucket that changes its keys, while no script obeys it: see lua/relocate.lua.
func (k keys) confAside() string { return k.prefix + "conf_aside" }

func (k keys) pace() string   { return k.prefix + "pace" }
func (k keys) count() string  { return k.prefix + "count" }
func (k keys) body() string   { return k.prefix + "body" }
func (k keys) meta() string   { return k.prefix + "meta" }
func (k keys) leases() string { return k.prefix + "leases" }
func (k keys) claims() string { return k.prefix + "claims" }
func (k keys) dead() string   { return k.prefix + "dead" }
func (k keys) seen() string   { return k.prefix + "seen" }

// seenWindow and seenMinute are the ids in seen, oldest first: see lua/lib/dedupe.lua.
func (k keys) seenWindow() string { return k.prefix + "seen_window" }
func (k keys) seenMinute() string { return k.prefix + "seen_minute" }

// seenUntil is what they were in data of schema 1: lua/sweep.lua empties it.
func (k keys) seenUntil() string { return k.prefix + "seen_until" }

func (k keys) flows() string        { return k.prefix + "flows" }
func (k keys) flowSettings() string { return k.prefix + "flow_settings" }

// idle is when flows and groups can be forgotten: see lua/idle.lua.
func (k keys) idle() string { return k.prefix + "idle" }

func (k keys) groups() string        { return k.prefix + "groups" }
func (k keys) groupSettings() string { return k.prefix + "group_settings" }

// due is the calendar: flows that have something to send. Where they are in groups, each
// group has one, and there is one of groups.
func (k keys) due() string                    { return k.prefix + "due:" }
func (k keys) dueOfGroup(group string) string { return k.prefix + "due:" + group }
func (k keys) dueGroups() string              { return k.prefix + "due_groups" }

// calendar is the one that a claim begins with.
func (k keys) calendar() string {
	if k.levels == levelsGroups {
		return k.dueGroups()
	}
	return k.due()
}

// dueOf is the calendar on which a flow stands.
func (k keys) dueOf(flow string) string {
	if k.levels == levelsGroups {
		group, _, _ := splitPath(flow)
		return k.dueOfGroup(group)
	}
	return k.due()
}

// departed are the times of departures, for the quotas: of a flow, or of the bucket.
func (k keys) departed() string                  { return k.prefix + "departed" }
func (k keys) flowDeparted(flow string) string   { return k.prefix + "departed:" + flow }
func (k keys) groupDeparted(group string) string { return k.prefix + "departed_group:" + group }

// ofEmpty are keys that an empty bucket may have, beside its conf. Keys of callers, flows and groups expire.
func (k keys) ofEmpty() []string {
	return slices.Concat([]string{k.confAside(), k.meta(), k.pace(), k.count(), k.claims(), k.seen(), k.seenWindow(), k.seenMinute(),
		k.flows(), k.flowSettings(), k.groups(), k.groupSettings(), k.due(), k.dueGroups(), k.departed(), k.idle()}, k.purged(), k.places(""))
}

// A bucket without flows has the flow "".
func (k keys) list(priority Priority, flow string) string {
	return k.prefix + "q:" + string(priority) + ":" + flow
}
func (k keys) queue(flow string) string { return k.list(PriorityNormal, flow) }
func (k keys) later(flow string) string { return k.prefix + "later:" + flow }

// places are where jobs of a flow wait: a list for each priority, the most important
// first, and later. It is what scripts mean by the keys of a flow.
func (k keys) places(flow string) []string {
	places := make([]string, 0, len(Priorities())+1)
	for _, priority := range Priorities() {
		places = append(places, k.list(priority, flow))
	}
	return append(places, k.later(flow))
}

// purged are the places of what a purge has taken from those of a flow, until it is
// removed. A bucket purges one flow at a time.
func (k keys) purged() []string {
	places := make([]string, 0, len(Priorities())+1)
	for _, priority := range Priorities() {
		places = append(places, k.prefix+"purged:"+string(priority)+":")
	}
	return append(places, k.prefix+"purged_later:")
}

// with are fixed keys of a script, then the places of flows.
func (k keys) with(fixed []string, flows ...string) []string {
	for _, flow := range flows {
		fixed = append(fixed, k.places(flow)...)
	}
	return fixed
}

// inGroups are keys of a script and, where flows are in groups, those of the groups of some,
// as group.load of lua/group.lua wants them.
func (k keys) inGroups(fixed []string, flows ...string) []string {
	if k.levels != levelsGroups {
		return fixed
	}
	fixed = append(fixed, k.groups(), k.groupSettings())
	seen := make(map[string]bool, 1)
	for _, flow := range flows {
		if due := k.dueOf(flow); !seen[due] {
			seen[due] = true
			fixed = append(fixed, due)
		}
	}
	return fixed
}

// limit is the state of a limit for one key, counted in this bucket. It has a
// TTL, set by the script.
func (k keys) limit(limit admission.Limit, key string) string {
	return k.prefix + "limit:" + limit.Name + ":" + key
}

// besideLimit are the keys that enqueue.lua wants beside that: the count of the
// limit's keys whose states live so long, and the state that callers of a tier
// share above MaxKeys. No key of a caller has a colon.
func (k keys) besideLimit(limit admission.Limit, tier string, life int64) [2]string {
	return [2]string{
		k.prefix + "limit_keys:" + limit.Name + ":" + strconv.FormatInt(life, 10), k.prefix + "limit:" + limit.Name + ":overflow:" + tier,
	}
}

// The KEYS of each script, in the order of its header.

// forEnqueue are the first ones: those of limits, the places of flows, and inGroups follow.
func (k keys) forEnqueue() []string {
	return []string{k.body(), k.meta(), k.conf(), k.pace(), k.count(), k.dead(), k.seen(), k.flows(), k.calendar(), k.flowSettings(), k.idle()}
}

func (k keys) forReserve() []string {
	return k.inPool([]string{k.conf(), k.pace(), k.calendar(), k.leases()})
}

func (k keys) forReserveFlows(groups []string) []string {
	names := make([]string, 0, 1+len(groups))
	names = append(names, k.pace())
	for _, group := range groups {
		names = append(names, k.dueOfGroup(group))
	}
	return names
}

// A bucket without flows has the flow "".
func (k keys) forClaim(flows, groups []string) []string {
	names := make([]string, 0, 20+6*len(flows)+2*len(groups))
	names = append(names, k.body(), k.meta(), k.conf(), k.pace(), k.leases(), k.claims(), k.dead(), k.count(), k.departed(),
		k.flows(), k.flowSettings(), k.calendar(), k.idle())
	for _, flow := range flows {
		names = append(append(names, k.places(flow)...), k.flowDeparted(flow))
	}
	if k.levels == levelsGroups {
		names = append(names, k.groups(), k.groupSettings())
		for _, group := range groups {
			names = append(names, k.dueOfGroup(group), k.groupDeparted(group))
		}
	}
	return k.inPool(names)
}

func (k keys) forSettle(flows ...string) []string {
	return k.inPool(k.inGroups(k.with([]string{k.body(), k.meta(), k.conf(), k.pace(), k.count(), k.leases(), k.dead(), k.seen(), k.seenWindow(), k.seenMinute(),
		k.flows(), k.flowSettings(), k.calendar()}, flows...), flows...))
}

func (k keys) forExtend() []string { return []string{k.meta(), k.leases(), k.claims()} }

func (k keys) forSweep() []string {
	fixed := []string{k.body(), k.meta(), k.conf(), k.pace(), k.count(), k.leases(), k.dead(), k.seen(), k.seenWindow(), k.seenMinute(), k.claims(),
		k.flows(), k.flowSettings(), k.calendar(), k.groups(), k.groupSettings(), k.idle(), k.seenUntil()}
	return k.inPool(k.with(append(fixed, k.purged()...), ""))
}

func (k keys) forTakeBack(flows ...string) []string {
	fixed := []string{k.body(), k.meta(), k.conf(), k.pace(), k.count(), k.leases(), k.dead(), k.flows(), k.flowSettings(), k.calendar()}
	return k.inPool(k.inGroups(k.with(append(fixed, k.purged()...), flows...), flows...))
}

func (k keys) forTrimDead() []string {
	return []string{k.body(), k.meta(), k.conf(), k.count(), k.dead(), k.seen(), k.seenWindow(), k.seenMinute()}
}

// forOffCalendar are those on which each of some flows stands.
func (k keys) forOffCalendar(flows []string) []string {
	calendars := make([]string, len(flows))
	for i, flow := range flows {
		calendars[i] = k.dueOf(flow)
	}
	return calendars
}

func (k keys) forFlowsOf() []string { return []string{k.body()} }

func (k keys) forCancel(flow string) []string {
	return k.inGroups(k.with([]string{k.body(), k.meta(), k.conf(), k.count(), k.leases(), k.dead(), k.seen(), k.seenWindow(), k.seenMinute(),
		k.flows(), k.flowSettings()}, flow))
}

func (k keys) forRedrive(flows ...string) []string {
	return k.inGroups(k.with([]string{k.body(), k.meta(), k.conf(), k.pace(), k.count(), k.dead(), k.flows(), k.flowSettings(), k.calendar()},
		flows...), flows...)
}

func (k keys) forConfigure() []string {
	return []string{k.conf(), k.body(), k.dead(), k.confAside(), k.confBefore(), k.leases()}
}

// forRelocate are the first keys of that script: those to write or to remove follow.
func (k keys) forRelocate() []string {
	return []string{k.conf(), k.confAside(), k.body(), k.leases(), k.dead(), k.seen(), k.seenWindow(), k.seenMinute()}
}

func (k keys) forControl() []string { return []string{k.conf()} }

func (k keys) forControlFlow(flow string) []string {
	return k.inGroups(k.with([]string{k.conf(), k.pace(), k.flows(), k.flowSettings(), k.calendar()}, flow), flow)
}

func (k keys) forControlGroup(group string) []string {
	return []string{k.conf(), k.pace(), k.groups(), k.groupSettings(), k.dueGroups(), k.dueOfGroup(group)}
}

func (k keys) forPurge(flow string) []string {
	fixed := []string{k.body(), k.meta(), k.conf(), k.count(), k.seen(), k.seenWindow(), k.seenMinute(), k.flows(), k.flowSettings()}
	return k.inGroups(k.with(append(fixed, k.purged()...), flow))
}

func (k keys) forPin() []string { return []string{k.conf()} }

func (k keys) forInspectJob(flow string) []string {
	fixed := []string{k.body(), k.meta(), k.conf(), k.pace(), k.count(), k.leases(), k.dead(), k.seen(), k.flows(), k.flowSettings(),
		k.departed(), k.flowDeparted(flow)}
	names := k.inGroups(k.with(append(fixed, k.purged()...), flow))
	if k.levels == levelsGroups {
		group, _, _ := splitPath(flow)
		names = append(names, k.groupDeparted(group))
	}
	return k.inPool(names)
}

func forInspectPool(pool string) []string {
	return []string{poolConf(pool), poolPace(pool), poolBuckets(pool)}
}

func (k keys) forInspectBucket() []string {
	fixed := []string{k.body(), k.conf(), k.pace(), k.count(), k.leases(), k.dead(), k.seen(), k.flows(), k.due(), k.groups(), k.dueGroups()}
	return k.inPool(k.with(append(fixed, k.purged()...), ""))
}
