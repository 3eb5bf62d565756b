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

// WakePool and a pool's name stand there for all its buckets. No bucket's name has a colon.
const WakePool = "pool:"

// WakeSchedules and a bucket's name stand there for those that fire its schedules.
const WakeSchedules = "schedules:"

// WakeOne stands there for one dispatcher of a bucket: the one that a claim names. No bucket's name has a space.
func WakeOne(bucket, dispatcher string) string { return bucket + " " + dispatcher }

// TagsKey is the index: the hash tag of every bucket there ever was, which is its name or that of its pool.
// See lua/assign.lua.
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
// cluster, and none has a TTL: they are the bucket. They hold what is
// unfinished, what is dead until an operator drops it, and ids that expire by
// their dedupe window.
//
// A script on a bucket whose flows are in groups touches more keys, and so does one on
// a bucket in a pool: so these know its levels and its pool.
type Keys struct {
	Prefix string
	Name   string // in the keys: the first name of the bucket, see [shaper.Bucket.KeyName]. Scripts publish it
	Levels int
	Member string // what scripts are told: Name where the bucket is in a pool, else ""
	Pool   string // the pool's name, "" in none
}

// BucketKeys are those of a bucket that is in no pool.
func BucketKeys(bucket string) Keys { return TaggedKeys(bucket, bucket) }

// TaggedKeys are those of a bucket of that first name with that tag: the first name, or the name of its pool. A
// bucket cannot be in a pool of its own name.
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

// PoolConf is what scripts obey of a pool.
func PoolConf(pool string) string    { return PoolPrefix(pool) + "conf" }
func poolPace(pool string) string    { return PoolPrefix(pool) + "pace" }
func poolBuckets(pool string) string { return PoolPrefix(pool) + "buckets" }

// InPool are keys of a script and, of a bucket in a pool, those of the pool, as
// lua/lib/pool.lua wants them.
func (k Keys) InPool(names []string) []string {
	if k.Pool == "" {
		return names
	}
	prefix := PoolPrefix(k.Pool)
	return append(names, prefix+"conf", prefix+"pace", prefix+"departed", prefix+"buckets", prefix+"busy", prefix+"held", prefix+"gaps")
}

func (k Keys) Conf() string { return k.Prefix + "settings" }

// ConfBefore is the conf of a bucket whose data has schema 1. Since schema 2 it holds the schema alone: see lua/configure.lua.
func (k Keys) ConfBefore() string { return k.Prefix + "conf" }

// ConfAside is the conf of a bucket that changes its keys, while no script obeys it: see lua/relocate.lua.
func (k Keys) ConfAside() string { return k.Prefix + "conf_aside" }

// Differing are the processes whose configuration differs from the settings in force: see lua/note_differences.lua.
func (k Keys) Differing() string { return k.Prefix + "differing" }

func (k Keys) Pace() string  { return k.Prefix + "pace" }
func (k Keys) Count() string { return k.Prefix + "count" }
func (k Keys) Body() string  { return k.Prefix + "body" }
func (k Keys) Meta() string  { return k.Prefix + "meta" }

// Attempts are how the last deliveries of jobs ended: see lua/lib/outcomes.lua.
func (k Keys) Attempts() string { return k.Prefix + "attempts" }

func (k Keys) Leases() string { return k.Prefix + "leases" }
func (k Keys) Claims() string { return k.Prefix + "claims" }

// Riders are the jobs that are in flight with another one: see lua/lib/batch.lua.
func (k Keys) Riders() string { return k.Prefix + "riders" }

func (k Keys) Dead() string { return k.Prefix + "dead" }
func (k Keys) Seen() string { return k.Prefix + "seen" }

// SeenWindow and seenMinute are the ids in seen, oldest first: see lua/lib/dedupe.lua.
func (k Keys) SeenWindow() string { return k.Prefix + "seen_window" }
func (k Keys) SeenMinute() string { return k.Prefix + "seen_minute" }

// SeenUntil is what they were in data of schema 1: lua/sweep.lua empties it.
func (k Keys) SeenUntil() string { return k.Prefix + "seen_until" }

func (k Keys) Flows() string        { return k.Prefix + "flows" }
func (k Keys) FlowSettings() string { return k.Prefix + "flow_settings" }

// Disabled are the disabled flows, and when lua/empty_disabled.lua is to look at them.
func (k Keys) Disabled() string { return k.Prefix + "disabled" }

// Expiries are when jobs expire: see lua/lib/expiries.lua.
func (k Keys) Expiries() string { return k.Prefix + "expiries" }

// DisabledDeaths are the times at which letters of disabled flows died: see lua/disabled_deaths.lua.
func (k Keys) DisabledDeaths() string { return k.Prefix + "disabled_deaths" }

// Outbox and OutboxTexts are the events that hooks are to be told: see lua/lib/outbox.lua.
func (k Keys) Outbox() string      { return k.Prefix + "outbox" }
func (k Keys) OutboxTexts() string { return k.Prefix + "outbox_texts" }

// Callbacks are outcomes that are to be told, CallbackTexts what they hold, and CallbackCounts how many each flow and group
// has: see lua/lib/callbacks.lua.
func (k Keys) Callbacks() string      { return k.Prefix + "callbacks" }
func (k Keys) CallbackTexts() string  { return k.Prefix + "callback_texts" }
func (k Keys) CallbackCounts() string { return k.Prefix + "callback_counts" }

// Bundles are those of the bucket, bundleEnds when each is forgotten, and bundleCallers whose each is: see lua/lib/bundle.lua.
func (k Keys) Bundles() string    { return k.Prefix + "bundles" }
func (k Keys) bundleEnds() string { return k.Prefix + "bundle_ends" }

func (k Keys) bundleCallers() string { return k.Prefix + "bundle_callers" }

// FlowMakers are the callers that made flows: see lua/lib/makers.lua.
func (k Keys) FlowMakers() string { return k.Prefix + "flow_makers" }

// Results are what was answered to jobs that ended, and ResultEnds when each is dropped; Answer is where dispatchers of a version before
// leave the result that a process waits for: see lua/lib/results.lua.
func (k Keys) Results() string    { return k.Prefix + "results" }
func (k Keys) ResultEnds() string { return k.Prefix + "result_ends" }
func (k Keys) resultShares() []string {
	return []string{k.Prefix + "result_flows", k.Prefix + "result_order", k.Prefix + "result_shares"}
}
func (k Keys) Answer(id string) string { return k.Prefix + "answer:" + id }

// Schedules are the schedules of the bucket and their states, and ScheduleDue when there is something to do with each: see
// lua/lib/schedule.lua.
func (k Keys) Schedules() string   { return k.Prefix + "schedules" }
func (k Keys) ScheduleDue() string { return k.Prefix + "schedule_due" }

// Idle is when flows and groups can be forgotten: see lua/lib/idle.lua.
func (k Keys) Idle() string { return k.Prefix + "idle" }

func (k Keys) Groups() string        { return k.Prefix + "groups" }
func (k Keys) GroupSettings() string { return k.Prefix + "group_settings" }

// Due is the turn queue: flows that have something to send. Where they are in groups, each
// group has one, and there is one of groups.
func (k Keys) Due() string                    { return k.Prefix + "due:" }
func (k Keys) DueOfGroup(group string) string { return k.Prefix + "due:" + group }
func (k Keys) DueGroups() string              { return k.Prefix + "due_groups" }

// TurnQueue is the one that a claim begins with.
func (k Keys) TurnQueue() string {
	if k.Levels == codec.LevelsGroups {
		return k.DueGroups()
	}
	return k.Due()
}

// DueOf is the turn queue in which a flow stands.
func (k Keys) DueOf(flow string) string {
	if k.Levels == codec.LevelsGroups {
		group, _, _ := codec.SplitPath(flow)
		return k.DueOfGroup(group)
	}
	return k.Due()
}

// Departed are the times of departures, for the quotas: of a flow, or of the bucket.
func (k Keys) Departed() string                  { return k.Prefix + "departed" }
func (k Keys) FlowDeparted(flow string) string   { return k.Prefix + "departed:" + flow }
func (k Keys) GroupDeparted(group string) string { return k.Prefix + "departed_group:" + group }

// Charges are what departures charge to budgets: see lua/lib/charges.lua.
func (k Keys) Charges() string { return k.Prefix + "charges" }

// Responses are those whose use several requests report: see lua/lib/responses.lua.
func (k Keys) Responses() string { return k.Prefix + "responses" }

// Lessons are what workers have learned: see lua/learn.lua.
func (k Keys) Lessons() string { return k.Prefix + "lessons" }

// Use is what calls of language models have used on a day: see lua/lib/use.lua.
func (k Keys) Use(day string) string { return k.Prefix + "use:" + day }

// WithUse puts the use of days into the keys of settle.lua, which is told of the first day as the last one: before those of the pool.
func (k Keys) WithUse(keys, days []string) []string {
	at := len(keys) - len(k.InPool(nil))
	for _, day := range days {
		keys = slices.Insert(keys, at, k.Use(day))
	}
	return keys
}

// Uses are the use of all days of which some may be kept. They expire.
func (k Keys) Uses(now time.Time) []string {
	days := codec.UseDays(now.AddDate(0, 0, -codec.UseKept), now.AddDate(0, 0, 1)) // the clock of Redis may be some hours away
	for i, day := range days {
		days[i] = k.Use(day)
	}
	return days
}

// OfEmpty are keys that an empty bucket may have, beside its conf. Keys of callers, flows, groups and days expire.
func (k Keys) OfEmpty() []string {
	return slices.Concat([]string{k.ConfAside(), k.Meta(), k.Attempts(), k.Pace(), k.Count(), k.Claims(), k.Seen(), k.SeenWindow(), k.SeenMinute(),
		k.Flows(), k.FlowSettings(), k.Groups(), k.GroupSettings(), k.Due(), k.DueGroups(), k.Departed(), k.Charges(), k.Responses(), k.Lessons(), k.Idle(), k.Disabled(), k.DisabledDeaths(), k.Outbox(), k.OutboxTexts(),
		k.Results(), k.ResultEnds(), k.Callbacks(), k.CallbackTexts(), k.CallbackCounts(), k.Bundles(), k.bundleEnds(), k.bundleCallers(), k.FlowMakers(), k.Riders(), k.Expiries(),
		k.Schedules(), k.ScheduleDue()}, k.resultShares(), k.Purged(), k.Places(""))
}

// ofBucket are all keys that a bucket may have, but its settings and the keys of flows, groups and callers.
func (k Keys) ofBucket(now time.Time) []string {
	return slices.Concat(k.OfEmpty(), []string{k.Body(), k.Leases(), k.Dead(), k.SeenUntil()}, k.Uses(now))
}

// List has the jobs of a priority that wait. A bucket without flows has the flow "".
func (k Keys) List(priority shaper.Priority, flow string) string {
	return k.Prefix + "q:" + string(priority) + ":" + flow
}
func (k Keys) Queue(flow string) string { return k.List(shaper.PriorityNormal, flow) }
func (k Keys) Later(flow string) string { return k.Prefix + "later:" + flow }

// Places are where jobs of a flow wait: a list for each priority, the most important
// first, and later. It is what scripts mean by the keys of a flow.
func (k Keys) Places(flow string) []string {
	places := make([]string, 0, len(shaper.Priorities())+1)
	for _, priority := range shaper.Priorities() {
		places = append(places, k.List(priority, flow))
	}
	return append(places, k.Later(flow))
}

// Purged are the places of what a purge has taken from those of a flow, until it is
// removed. A bucket purges one flow at a time.
func (k Keys) Purged() []string {
	places := make([]string, 0, len(shaper.Priorities())+1)
	for _, priority := range shaper.Priorities() {
		places = append(places, k.Prefix+"purged:"+string(priority)+":")
	}
	return append(places, k.Prefix+"purged_later:")
}

// Limit is the state of a limit for one key, counted in this bucket. It has a
// TTL, set by the script.
func (k Keys) Limit(limit admission.Limit, key string) string {
	return k.Prefix + "limit:" + limit.Name + ":" + key
}

// BesideLimit are the keys that enqueue.lua wants beside that: the count of the
// limit's keys whose states live so long, and the state that callers of a tier
// share above MaxKeys. No key of a caller has a colon.
func (k Keys) BesideLimit(limit admission.Limit, tier string, life int64) [2]string {
	return [2]string{
		k.Prefix + "limit_keys:" + limit.Name + ":" + strconv.FormatInt(life, 10), k.Prefix + "limit:" + limit.Name + ":overflow:" + tier,
	}
}

// Of are the KEYS of a script, for the flows that it is told of. A bucket without flows has the flow "". The description of a
// script in package lua says what they are. Keys of limits stand between the first ones and those of flows: for these there are
// Fixed and More.
func (k Keys) Of(script *lua.Script, flows ...string) []string { return k.OfGroups(script, flows, nil) }

// OfGroups is Of for a script that is told of groups, too.
func (k Keys) OfGroups(script *lua.Script, flows, groups []string) []string {
	return k.More(k.Fixed(make([]string, 0, 32+6*len(flows)+2*len(groups)), script, flows...), script, flows, groups)
}

// Fixed adds the first KEYS of a script to others. A key of one flow, or of one job, is that of the first.
func (k Keys) Fixed(others []string, script *lua.Script, flows ...string) []string {
	for _, name := range script.FixedKeys() {
		switch name {
		case lua.TurnQueue:
			others = append(others, k.TurnQueue())
		case lua.DeparturesOfFlow:
			others = append(others, k.FlowDeparted(flows[0]))
		case lua.AnswerOfJob:
			others = append(others, k.Answer(flows[0]))
		default:
			others = append(others, k.Prefix+name)
		}
	}
	return others
}

// More adds the KEYS of a script that follow its first ones to others.
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

// ForEstimates adds the keys that enqueue.lua needs to tell when jobs of these flows leave: with quotas those of a bucket with quotas, budgets
// or a timetable, and those of the pool. It also returns how the script is told of them.
func (k Keys) ForEstimates(keys, flows []string, quotas bool) (all []string, told string) {
	if quotas {
		told = "q"
		keys = append(keys, k.Departed(), k.Leases(), k.Charges())
		for _, flow := range flows {
			if k.Levels != codec.LevelsNone {
				keys = append(keys, k.FlowDeparted(flow))
			}
		}
		keys = k.more(lua.GroupDepartures, keys, flows, nil)
	}
	if k.Pool != "" {
		told += "p"
		keys = append(keys, PoolConf(k.Pool), poolPace(k.Pool), PoolPrefix(k.Pool)+"departed")
	}
	return keys, told
}

// turnQueuesOfGroupsOf has each turn queue once.
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

// OfGroup are the KEYS of control_flow.lua for a group.
func (k Keys) OfGroup(group string) []string {
	return []string{k.Conf(), k.Pace(), k.Groups(), k.GroupSettings(), k.DueGroups(), k.Disabled(), k.Count(), k.Outbox(), k.OutboxTexts(),
		k.DueOfGroup(group)}
}

// ForControlPool are the KEYS of control.lua for a pool.
func ForControlPool(pool string) []string { return []string{PoolConf(pool), poolPace(pool)} }

func ForInspectPool(pool string) []string {
	return []string{PoolConf(pool), poolPace(pool), poolBuckets(pool), PoolPrefix(pool) + "departed"}
}
