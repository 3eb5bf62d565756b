package scripts_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// seenJob is a job as it stands in Redis.
type seenJob struct {
	flow     string
	priority int
	state    int64 // by its meta; of one never claimed 1 or 2, by its mark
	sched    bool  // it counts as scheduled
	number   int64
	crashes  int
}

// waitsInList reports whether the job waits in a list, if it is in one of its own.
func (j seenJob) waitsInList() bool { return j.state == isQueued }
func (j seenJob) waitsInLater() bool {
	return j.state == isScheduled || j.state == isRetrying
}

// snapshot is all that a bucket with flows has.
type snapshot struct {
	now      int64
	jobs     map[string]seenJob
	lists    map[string][4][]string // by flow
	later    map[string]map[string]int64
	leases   map[string]int64
	dead     map[string]int64
	due      map[string]int64
	flows    map[string]string
	groups   map[string]string
	top      map[string]int64 // the calendar of groups
	purged   [4][]string
	movedOut map[string]int64 // purged_later
	count    map[string]string
	offset   int64 // of the calendar, as the next reserve makes it
}

func scores(zs []redis.Z) map[string]int64 {
	m := make(map[string]int64, len(zs))
	for _, z := range zs {
		m[fmt.Sprint(z.Member)] = int64(z.Score)
	}
	return m
}

// snap reads all of the bucket in one step.
func (r *rig) snap(names ...string) snapshot {
	r.t.Helper()
	pipe := r.c.TxPipeline()
	zset := func(name string) *redis.ZSliceCmd { return pipe.ZRangeWithScores(r.ctx, r.key(name), 0, -1) }
	bodies, metas := pipe.HGetAll(r.ctx, r.key("body")), pipe.HGetAll(r.ctx, r.key("meta"))
	flows, count, pace := pipe.HGetAll(r.ctx, r.key("flows")), pipe.HGetAll(r.ctx, r.key("count")), pipe.HGetAll(r.ctx, r.key("pace"))
	groups, top := pipe.HGetAll(r.ctx, r.key("groups")), zset("due_groups")
	leases, dead, movedOut := zset("leases"), zset("dead"), zset("purged_later:")
	calendars := map[string]*redis.ZSliceCmd{}
	for _, name := range append([]string{}, names...) {
		calendars[r.due(name)] = zset(r.due(name))
	}
	var purged [4]*redis.StringSliceCmd
	lists, laters := map[string][4]*redis.StringSliceCmd{}, map[string]*redis.ZSliceCmd{}
	for i, list := range listKeys {
		purged[i] = pipe.LRange(r.ctx, r.key("purged:"+strings.TrimPrefix(list, "q:")), 0, -1)
	}
	for _, name := range names {
		var four [4]*redis.StringSliceCmd
		for i, list := range listKeys {
			four[i] = pipe.LRange(r.ctx, r.key(list+name), 0, -1)
		}
		lists[name], laters[name] = four, zset(laterKey+name)
	}
	must.Get(pipe.Exec(r.ctx))(r.t)
	s := snapshot{
		now: r.now(), jobs: map[string]seenJob{}, lists: map[string][4][]string{}, later: map[string]map[string]int64{},
		leases: scores(leases.Val()), dead: scores(dead.Val()), due: map[string]int64{}, flows: flows.Val(),
		groups: groups.Val(), top: scores(top.Val()),
		movedOut: scores(movedOut.Val()), count: count.Val(),
	}
	for _, calendar := range calendars {
		maps.Copy(s.due, scores(calendar.Val()))
	}
	for i := range purged {
		s.purged[i] = purged[i].Val()
	}
	for _, name := range names {
		var four [4][]string
		for i, list := range lists[name] {
			four[i] = list.Val()
		}
		s.lists[name], s.later[name] = four, scores(laters[name].Val())
	}
	clock, _ := strconv.ParseInt(pace.Val()["clock"], 10, 64)
	s.offset, _ = strconv.ParseInt(pace.Val()["offset"], 10, 64)
	s.offset += max(clock-s.now, 0)
	for id, body := range bodies.Val() {
		s.jobs[id] = r.seenJob(id, body, metas.Val()[id])
	}
	for id := range metas.Val() {
		if _, ok := s.jobs[id]; !ok {
			r.t.Fatalf("%s has a meta and no body", id)
		}
	}
	return s
}

// seenJob reads the body and the meta of a job.
func (r *rig) seenJob(id, body, meta string) seenJob {
	r.t.Helper()
	head, _, _ := strings.Cut(body, "\n")
	parts := strings.SplitN(head, " ", 4)
	must.Be(r.t, len(parts), 4, "the body of %s is %q", id, body)
	mark := parts[2]
	base := must.Get(strconv.ParseInt(parts[0], 10, 64))(r.t)
	index := must.Get(strconv.ParseInt(mark[13:16], 10, 64))(r.t)
	job := seenJob{
		flow: r.flowNamed(parts[3]), priority: strings.IndexByte("khnl", mark[12]) + 1,
		state: isQueued, sched: mark[11] == 'C', number: base + index,
	}
	if job.sched {
		job.state = isScheduled
	}
	if meta != "" {
		job.state = int64(meta[0] - '0')
		job.crashes = must.Get(strconv.Atoi(strings.Split(meta, " ")[4]))(r.t)
	}
	return job
}

// flowNamed is the flow that a header names.
func (r *rig) flowNamed(header string) string {
	r.t.Helper()
	var h jobNames
	if header != "" {
		r.ok(json.Unmarshal([]byte(header), &h))
	}
	return r.nameOf(entry{flow: h.Flow, group: h.Group})
}

// all are the ids of the lists of a flow.
func (s snapshot) all(flow string) []string {
	four := s.lists[flow]
	return slices.Concat(four[0], four[1], four[2], four[3])
}

// wouldPurge are the jobs of a flow that a purge which begins now takes.
func (s snapshot) wouldPurge(flow string, keepLater bool) (ids []string) {
	for id, job := range s.jobs {
		if job.flow != flow {
			continue
		}
		if _, due := s.later[flow][id]; job.waitsInLater() && due && !keepLater ||
			job.waitsInList() && slices.Contains(s.lists[flow][job.priority-1], id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// left is how many entries a purge has not removed yet.
func (s snapshot) left() int {
	n := len(s.movedOut)
	for _, list := range s.purged {
		n += len(list)
	}
	return n
}

// enqueueBatch enqueues jobs of one flow and priority as one, and returns the code of each.
func (r *rig) enqueueBatch(jobs []entry) []int64 {
	r.t.Helper()
	keys, args := r.alike(nil, len(jobs), max(jobs[0].priority, 1), r.nameOf(jobs[0]))
	for n, e := range jobs {
		args = append(args, e.id, fmt.Sprintf("%s%03d%s %s\n%s", e.mark(), n+1, e.expiry(), e.header(), e.content))
	}
	in := r.reader(lua.Enqueue, keys, args...)
	in.Int() // now
	codes := make([]int64, len(jobs))
	all := in.Int() > 0
	for i := range codes {
		if codes[i] = 1; !all {
			codes[i] = in.Int()
			in.Int()
			in.Int()
			in.Int()
		}
	}
	r.ok(in.Err())
	return codes
}

// steady checks that departures keep a rate and a quota: at is when the next would be due, if no burst was allowed.
type steady struct {
	at, interval float64
	burst        int64

	quota bool
	left  []int64
}

// A quota of the model.
const quotaCount, quotaWindow = 3, 2 * second

func (s *steady) departs(t *rapid.T, name string, at int64) {
	if n := len(s.left) - quotaCount; s.quota && n >= 0 && at < s.left[n]+quotaWindow {
		t.Fatalf("%s departs %d µs too early for its quota", name, s.left[n]+quotaWindow-at)
	}
	s.left = append(s.left, at)
	if s.interval == 0 {
		return
	}
	if earliest := s.at - float64(s.burst-1)*s.interval - 5; float64(at) < earliest {
		t.Fatalf("%s departs %.0f µs too early", name, earliest-float64(at))
	}
	s.at = max(s.at, float64(at)) + s.interval
}
