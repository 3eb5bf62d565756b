package shaper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
)

// ErrNotFound says that a bucket has no job of this id, and remembers none.
var ErrNotFound = errors.New("shaper: no such job")

// JobInfo is what is known of a job. Of a settled one only ID, Bucket and
// State are.
type JobInfo struct {
	ID       string
	Bucket   string
	Flow     string
	Group    string
	State    State
	Attempts int // deliveries that ended
	Lost     int // further ones: their dispatcher died or lost its lease, or they came before a redrive
	Crashes  int // of those the last ones in a row, with no outcome between

	// Position is how many jobs are ahead of it in its flow; -1 if it waits in no list.
	// It is exact among the first thousand of its priority and an estimate behind them,
	// and counts all that matter more as ahead.
	Position int64
	ETA      time.Time // queued: expected departure, as if other flows sent nothing; zero while bucket or flow is paused
	Due      time.Time // scheduled or retrying: when it may depart
	Deadline time.Time // in flight: end of the lease
	Died     time.Time // dead: when
	Enqueued time.Time

	Pause                 *Pause    // of its bucket, nil if that runs
	NextSlot              time.Time // of its bucket
	InFlight, MaxInFlight int64     // of its bucket
	QuotaFrees            time.Time // when the quotas of its bucket let a job leave; zero: at once
	OfFlow                *JobFlow  // what holds for its flow; nil in a bucket without flows
	OfGroup               *JobFlow  // what holds for its group; nil in a bucket without groups
	OfPool                *JobPool  // what holds for the pool of its bucket; nil if it is in none

	URL     string
	Method  string
	Headers map[string]string
	Payload []byte
	Last    LastResponse
}

// JobFlow is what holds for the flow of a job, or for its group.
type JobFlow struct {
	Pause                 *Pause    // nil if it runs
	InFlight, MaxInFlight int64     // the bound is 0 if it has none of its own
	RateFrees             time.Time // when its rate lets it depart next; zero: at once
	QuotaFrees            time.Time // when its quotas do
}

// Job returns what is known of a job, or [ErrNotFound]. The bucket may be one that
// has left the configuration, or is elsewhere; [ErrUnknownBucket] where Redis knows none either. One
// round trip; one more where the bucket has flows, one where it is not used yet by this
// client, and one where there is no such job.
func (c *Client) Job(ctx context.Context, bucket, id string) (JobInfo, error) {
	info, err := c.job(ctx, bucket, id)
	if errors.Is(err, ErrNotFound) && c.store.strayed(ctx, bucket) {
		return c.job(ctx, bucket, id)
	}
	return info, err
}

func (c *Client) job(ctx context.Context, bucket, id string) (JobInfo, error) {
	b, err := c.store.readable(ctx, bucket)
	if err != nil {
		return JobInfo{}, err
	}
	flows, err := c.store.flowsOf(ctx, b, id)
	if err != nil {
		return JobInfo{}, err
	}
	reply, err := c.store.run(ctx, lua.InspectJob, b.keys.forInspectJob(flows[0]), id, flows[0], b.parted(), b.keys.member)
	if err != nil {
		return JobInfo{}, fmt.Errorf("bucket %q: %w", bucket, err)
	}
	r := lua.NewReader(reply)
	if r.Left() == 0 && r.Err() == nil {
		return JobInfo{}, fmt.Errorf("%w: %q in bucket %q", ErrNotFound, id, bucket)
	}
	code, position, instant, metaText, body := r.Int(), r.Int(), r.Int(), r.Text(), r.Text()
	if r.Err() != nil {
		return JobInfo{}, fmt.Errorf("bucket %q: script inspect_job: %w", bucket, r.Err())
	}
	info := JobInfo{ID: id, Bucket: bucket, State: stateOf(code), Position: position}
	if body == "" {
		return info, nil
	}
	if err := info.fill(body, metaText); err != nil {
		return JobInfo{}, fmt.Errorf("bucket %q: job %q: %w", bucket, id, err)
	}
	_ = r.Int() // now
	info.Pause = readPause(r.Int(), r.Text(), r.Text())
	info.InFlight, info.MaxInFlight, info.NextSlot = r.Int(), r.Int(), time.UnixMicro(r.Int())
	info.QuotaFrees = instantOf(r.Int())
	parted := r.Int()
	ofFlow, ofGroup, ofPool := readJobFlow(r), readJobFlow(r), readJobPool(r)
	if p := b.settings.Load().Pool; p != nil {
		ofPool.Name, info.OfPool = p.Name, ofPool
	}
	if parted != partedNot {
		info.OfFlow = ofFlow
	}
	if parted == partedGroups {
		info.OfGroup = ofGroup
	}
	if r.Err() != nil {
		return JobInfo{}, fmt.Errorf("bucket %q: script inspect_job: %w", bucket, r.Err())
	}
	at := time.UnixMicro(instant)
	switch info.State {
	case StateQueued:
		if instant > 0 {
			info.ETA = at
		}
	case StateScheduled, StateRetrying:
		info.Due = at
	case StateInFlight:
		info.Deadline = at
	case StateDead:
		info.Died = at
	}
	return info, nil
}

// readJobFlow reads what inspect_job.lua says of the flow of a job, or of its group.
func readJobFlow(r *lua.Reader) *JobFlow {
	since, note := r.Int(), r.Text()
	flow := JobFlow{InFlight: r.Int(), MaxInFlight: r.Int(), RateFrees: instantOf(r.Int()), QuotaFrees: instantOf(r.Int())}
	flow.Pause = readFlowPause(since, note)
	return &flow
}

// instantOf is a Redis time, zero for 0.
func instantOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

func (j *JobInfo) fill(body, metaText string) error {
	job, err := open(body)
	if err != nil {
		return err
	}
	j.Flow, j.Group, j.URL, j.Method, j.Headers, j.Payload = job.Flow, job.Group, job.URL, job.Method, job.Headers, job.payload
	j.Enqueued = time.UnixMicro(job.enqueued)
	if metaText == "" {
		return nil
	}
	m, err := parseMeta(metaText)
	if err != nil {
		return err
	}
	j.Attempts, j.Lost, j.Crashes, j.Last = int(m.attempts), int(m.lost), int(m.crashes), m.last
	return nil
}

// Cancel cancels a job that waits and returns the state it is in now:
// [StateCancelled] if that worked, now or before; any other state says why
// not. [ErrNotFound] if there is no such job. One round trip; two where the bucket
// has flows.
func (c *Client) Cancel(ctx context.Context, bucket, id string) (State, error) {
	return c.cancel(ctx, bucket, id, "")
}

// DropDead drops a dead letter and returns the state the job is in now:
// [StateDropped] if that worked, now or before. One round trip.
func (c *Client) DropDead(ctx context.Context, bucket, id string) (State, error) {
	return c.cancel(ctx, bucket, id, fmt.Sprint(slices.Index(stateCodes[:], StateDead)))
}

func (c *Client) cancel(ctx context.Context, bucket, id, wanted string) (State, error) {
	b, err := c.store.bucket(bucket)
	if err != nil {
		return "", err
	}
	const otherFlow = -2 // the id became another job's between the two questions
	const notConfigured = -1
	var reply any
	for code, tries := int64(otherFlow), 0; code == otherFlow || code == notConfigured && tries < 2; {
		if code == notConfigured {
			tries++
			b.configured.Store(false)
		}
		if err := c.store.configure(ctx, b); err != nil {
			return "", err
		}
		flows, err := c.store.flowsOf(ctx, b, id)
		if err != nil {
			return "", err
		}
		reply, err = c.store.run(ctx, lua.Cancel, b.keys.forCancel(flows[0]), id, wanted, b.parted(), flows[0])
		if err != nil {
			return "", fmt.Errorf("bucket %q: %w", bucket, err)
		}
		code, _ = reply.(int64)
	}
	code, ok := reply.(int64)
	switch {
	case !ok:
		return "", fmt.Errorf("bucket %q: script cancel answered %v", bucket, reply)
	case code < 0:
		b.configured.Store(false)
		return "", fmt.Errorf("bucket %q: %w", bucket, errNotConfigured)
	case code == 0:
		return "", fmt.Errorf("%w: %q in bucket %q", ErrNotFound, id, bucket)
	}
	return stateOf(code), nil
}

// BucketInfo is a bucket in numbers.
type BucketInfo struct {
	Name              string
	Now               time.Time // of Redis
	Configured        bool      // its settings are in Redis
	Revision          int64
	Rate              admission.Rate // what the scripts obey
	Burst             int64
	Capacity          int64
	ScheduledCapacity int64
	MaxInFlight       int64

	Unfinished int64 // what counts against Capacity
	Waiting    int64 // in the lists; with flows: all that wait, also for their time
	Later      int64 // delayed jobs and retries; with flows: 0, they are not counted apart
	Scheduled  int64 // what counts against ScheduledCapacity
	InFlight   int64
	Dead       int64
	Remembered int64 // ids of settled jobs
	Forgotten  int64 // ids forgotten before their dedupe window ended
	Purged     int64 // jobs that purges have dropped, ever
	Purging    int64 // entries that a purge has moved aside and not removed yet

	DeadBytes        int64 // of dead letters
	DeadCapacity     int64 // how many dead letters there may be before new jobs are refused, or the oldest dropped
	DeadMaxBytes     int64 // how many bytes of them; 0 no bound
	DeadDroppedOld   int64 // dead letters that were dropped as their retention had ended, ever
	DeadDroppedExtra int64 // dead letters that were dropped as there were too many, ever

	HasFlows  bool
	Flows     int64 // that have jobs, or had some so lately that their pace still counts
	FlowsWait int64 // that stand on the calendar: they have something to send, now or later; with groups: 0, see GroupsWait

	HasGroups  bool
	Groups     int64 // as Flows
	GroupsWait int64 // that stand on the calendar of groups

	Pool *PoolInfo // nil if it is in none

	// Elsewhere says that the bucket lives in another pool than the configuration here says, or in none. The
	// numbers, and Pool, are those there. See [Client.JoinPools].
	Elsewhere bool

	OldestAge time.Duration // of the job at the head; 0 with flows: nobody knows
	LastSlot  time.Time

	Pause *Pause // nil if the bucket runs
	Pins  []Pin  // settings that an operator has changed
}

// BucketInfos returns the numbers of buckets, after a look at where they live, in one pipeline, in a cluster one
// to each node; without names, of all that are configured. With an error, which
// names the buckets that could not be looked at, it returns those that could.
func (c *Client) BucketInfos(ctx context.Context, names ...string) ([]BucketInfo, error) {
	if len(names) == 0 {
		names = c.store.order
	}
	ctx, cancel := context.WithTimeout(ctx, c.store.timeout)
	defer cancel()
	live, unknown := c.store.liveKeys(ctx, names...)
	calls := make([]lua.Call, len(names))
	for i := range names {
		k := live[names[i]]
		calls[i] = lua.Call{Script: lua.InspectBucket, Keys: k.forInspectBucket(), Args: []any{k.member}}
	}
	infos := make([]BucketInfo, 0, len(names))
	errs := []error{unknown}
	for i, result := range lua.RunAll(ctx, c.store.redis, calls) {
		info, err := BucketInfo{}, result.Err
		if err == nil {
			info, err = readBucketInfo(names[i], live[names[i]], result.Reply)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("look at bucket %q: %w", names[i], err))
			continue
		}
		b, ok := c.store.buckets[names[i]]
		info.Elsewhere = ok && b.keys.prefix != live[names[i]].prefix
		infos = append(infos, info)
	}
	return infos, errors.Join(errs...)
}

func readBucketInfo(name string, k keys, reply any) (BucketInfo, error) {
	r := lua.NewReader(reply)
	now := r.Int()
	info := BucketInfo{Name: name, Now: time.UnixMicro(now), Configured: r.Int() == 1, Revision: r.Int()}
	info.Rate = admission.Rate{Count: r.Int(), Per: time.Duration(r.Int()) * time.Microsecond, Unit: admission.UnitRequests}
	info.Burst, info.Capacity, info.ScheduledCapacity, info.MaxInFlight = r.Int(), r.Int(), r.Int(), r.Int()
	info.Unfinished, info.Waiting, info.Later, info.Scheduled = r.Int(), r.Int(), r.Int(), r.Int()
	info.InFlight, info.Dead, info.Remembered, info.Forgotten = r.Int(), r.Int(), r.Int(), r.Int()
	if oldest := r.Int(); oldest > 0 {
		info.OldestAge = max(lua.Microseconds(now-oldest), 0)
	}
	if slot := r.Int(); slot > 0 {
		info.LastSlot = time.UnixMicro(slot)
	}
	since := r.Int()
	info.Purging, info.Purged = r.Int(), r.Int()
	parted := r.Int()
	info.HasFlows, info.HasGroups = parted != partedNot, parted == partedGroups
	info.Flows, info.FlowsWait, info.Groups, info.GroupsWait = r.Int(), r.Int(), r.Int(), r.Int()
	if pool := readPoolInfo(r); k.pool != "" {
		pool.Name, info.Pool = k.pool, pool
	}
	info.DeadBytes, info.DeadCapacity, info.DeadMaxBytes = max(r.Int(), 0), r.Int(), r.Int()
	info.DeadDroppedOld, info.DeadDroppedExtra = r.Int(), r.Int()
	info.Pause = readPause(since, r.Text(), r.Text())
	info.Pins = readPins(r)
	return info, r.Err()
}

func readPause(since int64, by, reason string) *Pause {
	if since == 0 {
		return nil
	}
	return &Pause{Since: time.UnixMicro(since), By: by, Reason: reason}
}

// KnownBuckets returns the names of all buckets that Redis knows, sorted: also
// those that left the configuration and may still hold jobs.
func (c *Client) KnownBuckets(ctx context.Context) ([]string, error) {
	if err := c.store.ifClosed(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.store.timeout)
	defer cancel()
	names, err := c.store.redis.HKeys(ctx, tagsKey).Result()
	if err != nil {
		return nil, fmt.Errorf("list the buckets: %w", err)
	}
	names = slices.DeleteFunc(names, func(field string) bool { return !isBucketField(field) })
	slices.Sort(names)
	return names, nil
}

// Ping asks Redis for a sign of life: of a cluster, one of any master. One round
// trip.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.store.ifClosed(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.store.timeout)
	defer cancel()
	cluster, ok := c.store.redis.(*redis.ClusterClient)
	if !ok {
		if err := c.store.redis.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("ping redis: %w", err)
		}
		return nil
	}
	var alive atomic.Bool
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		err := master.Ping(ctx).Err()
		alive.CompareAndSwap(false, err == nil)
		return err
	})
	if err != nil && !alive.Load() {
		cluster.ReloadState(ctx)
		return fmt.Errorf("ping the masters of the cluster: %w", err)
	}
	return nil
}
