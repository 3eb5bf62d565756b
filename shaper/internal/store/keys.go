package store

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// WakeChannel carries the names of buckets that have something to send sooner
// than their dispatchers may think.
const WakeChannel = "tundish:wake"

// WakePool and a pool's name mean, on this channel, all buckets of the pool. No bucket's name has a colon.
const WakePool = "pool:"

// WakeSchedules and a bucket's name wake the processes that fire its schedules.
const WakeSchedules = "schedules:"

// WakeOne returns the message that wakes one dispatcher of a bucket, which a claim names. No bucket's name has a space.
func WakeOne(bucket, dispatcher string) string { return bucket + " " + dispatcher }

// TagsKey is the index: the hash tag of every bucket that ever existed, which is its name or the name of its pool. See lua/assign.lua.
const TagsKey = "tundish:buckets"

// A bucket that is renamed keeps its keys, which have its first name (see [shaper.Bucket.RenamedFrom]). So no key moves, and processes with
// either name work on the same jobs. The index has an entry for each later name, for processes that know only that one.

// laterMark begins what the index has of a later name. No tag begins with it.
const laterMark = "="

// laterName is the entry of a later name of the bucket with this first name.
func laterName(first string) string { return laterMark + first }

// firstName reads an entry of the index. ok is false where it is a tag.
func firstName(entry string) (first string, ok bool) { return strings.CutPrefix(entry, laterMark) }

// Keys makes the names of a bucket's keys. This file is the only place that
// does. All of them share the tag, so that a bucket lives in one slot of a
// cluster, and only keys of counts, usage and learned estimates have a TTL. The others are the bucket. They hold what is
// unfinished, what is dead until an operator drops it, and ids that expire by
// their dedupe window.
//
// A script touches more keys if the bucket's flows are in groups, or if it is in a pool. So Keys knows its levels and its pool.
type Keys struct {
	Prefix string
	Name   string // in the keys: the first name of the bucket, see [shaper.Bucket.KeyName]. Scripts publish it
	Levels int
	Member string // argument of scripts: the bucket's name if it is in a pool, else ""
	Pool   string // the pool's name, "" in none
}

// BucketKeys returns the keys of a bucket that is in no pool.
func BucketKeys(bucket string) Keys { return TaggedKeys(bucket, bucket) }

// TaggedKeys returns the keys of a bucket with that tag: its own name, or the name of its pool. A bucket cannot be in a pool of its own name.
func TaggedKeys(tag, bucket string) Keys {
	k := Keys{Prefix: fmt.Sprintf("tundish:{%s}:b:%s:", tag, bucket), Name: bucket}
	if tag != bucket {
		k.Member, k.Pool = bucket, tag
	}
	return k
}

// As returns the keys for this number of levels.
func (k Keys) As(levels int) Keys {
	k.Levels = levels
	return k
}

// Tag is the hash tag of the bucket's keys.
func (k Keys) Tag() string { return cmp.Or(k.Pool, k.Name) }

func PoolPrefix(pool string) string { return fmt.Sprintf("tundish:{%s}:p:%s:", pool, pool) }

// PoolConf is the key of the settings of a pool.
func PoolConf(pool string) string    { return PoolPrefix(pool) + "conf" }
func poolPace(pool string) string    { return PoolPrefix(pool) + "pace" }
func poolBuckets(pool string) string { return PoolPrefix(pool) + "buckets" }

// InPool appends the keys of the pool to names, if the bucket is in one, as lua/lib/pool.lua wants them.
func (k Keys) InPool(names []string) []string {
	if k.Pool == "" {
		return names
	}
	prefix := PoolPrefix(k.Pool)
	return append(names, prefix+"conf", prefix+"pace", prefix+"departed", prefix+"buckets", prefix+"busy", prefix+"held", prefix+"gaps")
}

func (k Keys) Conf() string { return k.Prefix + "settings" }

// ParkedSettings is the key of the conf of a bucket that changes its keys, while no script obeys it: see lua/relocate.lua.
func (k Keys) ParkedSettings() string { return k.Prefix + "parked_settings" }

// Differing is the key of the processes whose configuration differs from the effective settings: see lua/note_differences.lua.
func (k Keys) Differing() string { return k.Prefix + "differing" }

func (k Keys) Pace() string  { return k.Prefix + "pace" }
func (k Keys) Count() string { return k.Prefix + "count" }
func (k Keys) Body() string  { return k.Prefix + "body" }
func (k Keys) Meta() string  { return k.Prefix + "meta" }

// Attempts is the key of the outcomes of jobs' last deliveries: see lua/lib/outcomes.lua.
func (k Keys) Attempts() string { return k.Prefix + "attempts" }

func (k Keys) Leases() string { return k.Prefix + "leases" }
func (k Keys) Claims() string { return k.Prefix + "claims" }

// Followers is the key of the batch members: jobs in flight with another job. See lua/lib/batch.lua.
func (k Keys) Followers() string { return k.Prefix + "followers" }

func (k Keys) Dead() string { return k.Prefix + "dead" }
func (k Keys) Seen() string { return k.Prefix + "seen" }

// SeenWindow and seenMinute are the keys of the ids in seen, oldest first: see lua/lib/dedupe.lua.
func (k Keys) SeenWindow() string { return k.Prefix + "seen_window" }
func (k Keys) SeenMinute() string { return k.Prefix + "seen_minute" }

func (k Keys) Flows() string        { return k.Prefix + "flows" }
func (k Keys) FlowSettings() string { return k.Prefix + "flow_settings" }

// Disabled is the key of the disabled flows and when lua/empty_disabled.lua checks each.
func (k Keys) Disabled() string { return k.Prefix + "disabled" }

// Expiries are when jobs expire: see lua/lib/expiries.lua.
func (k Keys) Expiries() string { return k.Prefix + "expiries" }

// DisabledDeaths is the key of the times at which dead letters of disabled flows died: see lua/disabled_deaths.lua.
func (k Keys) DisabledDeaths() string { return k.Prefix + "disabled_deaths" }

// Outbox and OutboxTexts are the keys of the events for hooks: see lua/lib/outbox.lua.
func (k Keys) Outbox() string      { return k.Prefix + "outbox" }
func (k Keys) OutboxTexts() string { return k.Prefix + "outbox_texts" }

// Callbacks is the key of the callbacks to be sent, CallbackTexts of their contents, and CallbackCounts of their number by flow and group: see
// lua/lib/callbacks.lua.
func (k Keys) Callbacks() string      { return k.Prefix + "callbacks" }
func (k Keys) CallbackTexts() string  { return k.Prefix + "callback_texts" }
func (k Keys) CallbackCounts() string { return k.Prefix + "callback_counts" }

// Bundles is the key of the bundles, bundleEnds of when each expires, and bundleCallers of the caller of each: see lua/lib/bundle.lua.
func (k Keys) Bundles() string    { return k.Prefix + "bundles" }
func (k Keys) bundleEnds() string { return k.Prefix + "bundle_ends" }

func (k Keys) bundleCallers() string { return k.Prefix + "bundle_callers" }

// FlowOwners is the key of the callers that created flows: see lua/lib/flow_owners.lua.
func (k Keys) FlowOwners() string { return k.Prefix + "flow_owners" }

// Results is the key of the responses to jobs that ended, and ResultEnds of when each is dropped: see lua/lib/results.lua.
func (k Keys) Results() string    { return k.Prefix + "results" }
func (k Keys) ResultEnds() string { return k.Prefix + "result_ends" }
func (k Keys) resultShares() []string {
	return []string{k.Prefix + "result_flows", k.Prefix + "result_order", k.Prefix + "result_shares"}
}

// Schedules is the key of the bucket's schedules and their states, and ScheduleDue of when each needs work: see lua/lib/schedule.lua.
func (k Keys) Schedules() string   { return k.Prefix + "schedules" }
func (k Keys) ScheduleDue() string { return k.Prefix + "schedule_due" }

// Idle is when flows and groups can be forgotten: see lua/lib/idle.lua.
func (k Keys) Idle() string { return k.Prefix + "idle" }

func (k Keys) Groups() string        { return k.Prefix + "groups" }
func (k Keys) GroupSettings() string { return k.Prefix + "group_settings" }

// Due is the key of the turn queue: flows that have something to send. If flows are in groups, each group has a turn queue, and DueGroups is the turn
// queue of groups.
func (k Keys) Due() string                    { return k.Prefix + "due:" }
func (k Keys) DueOfGroup(group string) string { return k.Prefix + "due:" + group }
func (k Keys) DueGroups() string              { return k.Prefix + "due_groups" }

// TurnQueue returns the key of the turn queue that a claim reads first.
func (k Keys) TurnQueue() string {
	if k.Levels == codec.LevelsGroups {
		return k.DueGroups()
	}
	return k.Due()
}

// DueOf returns the key of the turn queue of a flow.
func (k Keys) DueOf(flow string) string {
	if k.Levels == codec.LevelsGroups {
		group, _, _ := codec.SplitPath(flow)
		return k.DueOfGroup(group)
	}
	return k.Due()
}

// Departed is the key of the times of the bucket's departures, for its quotas; FlowDeparted and GroupDeparted are the keys for a flow and a group.
func (k Keys) Departed() string                  { return k.Prefix + "departed" }
func (k Keys) FlowDeparted(flow string) string   { return k.Prefix + "departed:" + flow }
func (k Keys) GroupDeparted(group string) string { return k.Prefix + "departed_group:" + group }

// Charges is the key of what departures charge to budgets: see lua/lib/charges.lua.
func (k Keys) Charges() string { return k.Prefix + "charges" }

// Responses is the key of the responses whose use several requests report: see lua/lib/responses.lua.
func (k Keys) Responses() string { return k.Prefix + "responses" }

// LearnedEstimates is the key of the learned estimates: see lua/store_learned_estimates.lua.
func (k Keys) LearnedEstimates() string { return k.Prefix + "learned_estimates" }

// Use is the key of the calls of language models on a day and their tokens: see lua/lib/use.lua.
func (k Keys) Use(day string) string { return k.Prefix + "use:" + day }

// WithUse inserts the use keys of days into the keys of settle.lua, before the keys of the pool. The script takes the first day as its last one.
func (k Keys) WithUse(keys, days []string) []string {
	at := len(keys) - len(k.InPool(nil))
	for _, day := range days {
		keys = slices.Insert(keys, at, k.Use(day))
	}
	return keys
}

// Uses returns the use keys of all days that may exist. They expire.
func (k Keys) Uses(now time.Time) []string {
	days := codec.UseDays(now.AddDate(0, 0, -codec.UseKept), now.AddDate(0, 0, 1)) // the clock of Redis may be some hours away
	for i, day := range days {
		days[i] = k.Use(day)
	}
	return days
}

// OfEmpty returns the keys that an empty bucket may have in addition to its conf. Keys of callers, flows, groups and days expire.
func (k Keys) OfEmpty() []string {
	return slices.Concat([]string{k.ParkedSettings(), k.Meta(), k.Attempts(), k.Pace(), k.Count(), k.Claims(), k.Seen(), k.SeenWindow(), k.SeenMinute(),
		k.Flows(), k.FlowSettings(), k.Groups(), k.GroupSettings(), k.Due(), k.DueGroups(), k.Departed(), k.Charges(), k.Responses(), k.LearnedEstimates(), k.Idle(), k.Disabled(), k.DisabledDeaths(), k.Outbox(), k.OutboxTexts(),
		k.Results(), k.ResultEnds(), k.Callbacks(), k.CallbackTexts(), k.CallbackCounts(), k.Bundles(), k.bundleEnds(), k.bundleCallers(), k.FlowOwners(), k.Followers(), k.Expiries(),
		k.Schedules(), k.ScheduleDue()}, k.resultShares(), k.Purged(), k.Places(""))
}

// ofBucket returns all keys that a bucket may have, except its settings and the keys of flows, groups and callers.
func (k Keys) ofBucket(now time.Time) []string {
	return slices.Concat(k.OfEmpty(), []string{k.Body(), k.Leases(), k.Dead()}, k.Uses(now))
}

// List is the key of the waiting jobs of a priority. A bucket without flows has the flow "".
func (k Keys) List(priority shaper.Priority, flow string) string {
	return k.Prefix + "q:" + string(priority) + ":" + flow
}
func (k Keys) Queue(flow string) string { return k.List(shaper.PriorityNormal, flow) }
func (k Keys) Later(flow string) string { return k.Prefix + "later:" + flow }

// Places returns the keys in which jobs of a flow wait: a list for each priority, most important first, and later. Scripts call them the keys of
// a flow.
func (k Keys) Places(flow string) []string {
	places := make([]string, 0, len(shaper.Priorities())+1)
	for _, priority := range shaper.Priorities() {
		places = append(places, k.List(priority, flow))
	}
	return append(places, k.Later(flow))
}

// Purged returns the keys to which a purge moves the jobs of a flow, until they are removed. A bucket purges one flow at a time.
func (k Keys) Purged() []string {
	places := make([]string, 0, len(shaper.Priorities())+1)
	for _, priority := range shaper.Priorities() {
		places = append(places, k.Prefix+"purged:"+string(priority)+":")
	}
	return append(places, k.Prefix+"purged_later:")
}

// Limit is the key of the state of a limit for one key, counted in this bucket. It has a TTL, set by the script.
func (k Keys) Limit(limit admission.Limit, key string) string {
	return k.Prefix + "limit:" + limit.Name + ":" + key
}

// BesideLimit returns two more keys that enqueue.lua needs for a limit: the count of the limit's keys whose states live this long, and the state
// that callers of a tier share above MaxKeys. No key of a caller has a colon.
func (k Keys) BesideLimit(limit admission.Limit, tier string, life int64) [2]string {
	return [2]string{
		k.Prefix + "limit_keys:" + limit.Name + ":" + strconv.FormatInt(life, 10), k.Prefix + "limit:" + limit.Name + ":overflow:" + tier,
	}
}

// Of returns the KEYS of a script for these flows. A bucket without flows has the flow "". The script's description in package lua says what the
// keys are. Keys of limits go between the first keys and the keys of flows: use Fixed and More for these.
func (k Keys) Of(script *lua.Script, flows ...string) []string { return k.OfGroups(script, flows, nil) }

// OfGroups is Of for a script that takes groups, too.
func (k Keys) OfGroups(script *lua.Script, flows, groups []string) []string {
	return k.More(k.Fixed(make([]string, 0, 32+6*len(flows)+2*len(groups)), script, flows...), script, flows, groups)
}

// Fixed appends the first KEYS of a script to others. A key of one flow belongs to the first of flows.
func (k Keys) Fixed(others []string, script *lua.Script, flows ...string) []string {
	for _, name := range script.FixedKeys() {
		switch name {
		case lua.TurnQueue:
			others = append(others, k.TurnQueue())
		case lua.DeparturesOfFlow:
			others = append(others, k.FlowDeparted(flows[0]))
		default:
			others = append(others, k.Prefix+name)
		}
	}
	return others
}

// More appends the KEYS of a script that follow its first ones to others.
func (k Keys) More(others []string, script *lua.Script, flows, groups []string) []string {
	for _, kind := range script.MoreKeys() {
		others = k.more(kind, others, flows, groups)
	}
	return others
}

func (k Keys) more(kind lua.Keys, keys, flows, groups []string) []string {
	switch kind {
	case lua.PurgedPlaces:
		keys = append(keys, k.Purged()...)
	case lua.PlacesOfFlows:
		for _, flow := range flows {
			keys = append(keys, k.Places(flow)...)
		}
	case lua.PlacesAndDepartures:
		for _, flow := range flows {
			keys = append(append(keys, k.Places(flow)...), k.FlowDeparted(flow))
		}
	case lua.TurnQueuesOfFlows:
		for _, flow := range flows {
			keys = append(keys, k.DueOf(flow))
		}
	case lua.TurnQueuesOfGroups:
		for _, group := range groups {
			keys = append(keys, k.DueOfGroup(group))
		}
	case lua.DeparturesOfParts:
		for _, flow := range flows {
			keys = append(keys, k.FlowDeparted(flow))
		}
		for _, group := range groups {
			keys = append(keys, k.GroupDeparted(group))
		}
	case lua.KeysOfPool:
		keys = k.InPool(keys)
	}
	if k.Levels != codec.LevelsGroups {
		return keys
	}
	switch kind {
	case lua.GroupsOfFlows:
		keys = append(keys, k.Groups(), k.GroupSettings())
		keys = append(keys, k.turnQueuesOfGroupsOf(flows)...)
	case lua.GroupDepartures:
		for _, flow := range flows {
			group, _, _ := codec.SplitPath(flow)
			keys = append(keys, k.GroupDeparted(group))
		}
	case lua.GroupsAndDepartures:
		keys = append(keys, k.Groups(), k.GroupSettings())
		for _, group := range groups {
			keys = append(keys, k.DueOfGroup(group), k.GroupDeparted(group))
		}
	}
	return keys
}

// ForEstimates appends the keys with which enqueue.lua estimates departures of these flows. With quotas, these are the keys of a bucket with
// quotas, budgets or a timetable; a pool's keys follow. given is the argument by which the script knows which keys it got.
func (k Keys) ForEstimates(keys, flows []string, quotas bool) (all []string, given string) {
	if quotas {
		given = "q"
		keys = append(keys, k.Departed(), k.Leases(), k.Charges())
		for _, flow := range flows {
			if k.Levels != codec.LevelsNone {
				keys = append(keys, k.FlowDeparted(flow))
			}
		}
		keys = k.more(lua.GroupDepartures, keys, flows, nil)
	}
	if k.Pool != "" {
		given += "p"
		keys = append(keys, PoolConf(k.Pool), poolPace(k.Pool), PoolPrefix(k.Pool)+"departed")
	}
	return keys, given
}

// turnQueuesOfGroupsOf returns each turn queue of these flows once.
func (k Keys) turnQueuesOfGroupsOf(flows []string) []string {
	var queues []string
	seen := make(map[string]bool, 1)
	for _, flow := range flows {
		if due := k.DueOf(flow); !seen[due] {
			seen[due] = true
			queues = append(queues, due)
		}
	}
	return queues
}

// OfGroup returns the KEYS of control_flow.lua for a group.
func (k Keys) OfGroup(group string) []string {
	return []string{k.Conf(), k.Pace(), k.Groups(), k.GroupSettings(), k.DueGroups(), k.Disabled(), k.Count(), k.Outbox(), k.OutboxTexts(),
		k.DueOfGroup(group)}
}

// ForControlPool returns the KEYS of control.lua for a pool.
func ForControlPool(pool string) []string { return []string{PoolConf(pool), poolPace(pool)} }

func ForInspectPool(pool string) []string {
	return []string{PoolConf(pool), poolPace(pool), poolBuckets(pool), PoolPrefix(pool) + "departed"}
}
