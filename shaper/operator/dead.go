package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// deadPageBytes bounds the bodies of dead letters in one answer.
const deadPageBytes = 1 << 20

// maxRedrive is how many dead letters one script moves.
const maxRedrive = 200

// DeadLetters are those of a bucket, to look at.
type DeadLetters struct {
	op     *Operator
	bucket string
}

// Dead names the dead letters of a bucket.
func (b Bucket) Dead() DeadLetters { return DeadLetters{b.op, b.name} }

// DeadControl are the dead letters of a bucket, to look at, to redrive and to drop.
type DeadControl struct {
	DeadLetters
	by string
}

// Dead names the dead letters of a bucket, to change them.
func (b BucketControl) Dead() DeadControl { return DeadControl{b.Bucket.Dead(), b.by} }

func (d DeadControl) control() control { return control{d.op, d.by} }

// List returns dead letters, the newest first: limit of them, from
// offset on, also of a bucket that has left the configuration. Three round trips, one more of
// such a one, and one for each mebibyte of bodies.
func (d DeadLetters) List(ctx context.Context, offset, limit int) ([]shaper.JobInfo, error) {
	o := d.op
	b, err := o.store.Readable(ctx, d.bucket)
	if err != nil {
		return nil, err
	}
	if limit <= 0 {
		return nil, nil
	}
	within, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	ids, err := o.store.Redis.ZRevRangeWithScores(within, b.Keys.Dead(), int64(offset), int64(offset+limit-1)).Result()
	if err != nil {
		return nil, fmt.Errorf("bucket %q: list dead letters: %w", d.bucket, err)
	}
	return o.deadInfos(ctx, b, ids)
}

func (o *Operator) deadInfos(ctx context.Context, b *store.Bucket, ids []redis.Z) ([]shaper.JobInfo, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i], _ = id.Member.(string)
	}
	bodies, metas, attempts, err := o.readJobs(ctx, b, names)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: read dead letters: %w", b.Name, err)
	}
	infos := make([]shaper.JobInfo, 0, len(ids))
	for i, id := range ids {
		body, ok := bodies[i].(string)
		if !ok {
			continue // dropped or redriven between the round trips
		}
		metaText, _ := metas[i].(string)
		lines, _ := attempts[i].(string)
		info := shaper.JobInfo{ID: names[i], Bucket: b.Name, State: shaper.StateDead, Position: -1, Died: time.UnixMicro(int64(id.Score)),
			LastAttempts: codec.Attempts(lines)}
		if err := codec.FillJob(&info, body, metaText); err != nil {
			info.Last.Detail = err.Error() // it is listed all the same, so that it can be dropped
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// readJobs reads bodies, metas and attempts of jobs, about a mebibyte in an answer:
// hundreds of large ones would not arrive in time over a slow link.
func (o *Operator) readJobs(ctx context.Context, b *store.Bucket, ids []string) (bodies, metas, attempts []any, err error) {
	pipe := o.store.Redis.Pipeline()
	sizes := make([]*redis.IntCmd, len(ids))
	for i, id := range ids {
		sizes[i] = pipe.HStrLen(ctx, b.Keys.Body(), id)
	}
	if err := o.exec(ctx, pipe); err != nil {
		return nil, nil, nil, err
	}
	for at := 0; at < len(ids); {
		end, bytes := at+1, sizes[at].Val()
		for end < len(ids) && bytes+sizes[end].Val() <= deadPageBytes {
			bytes += sizes[end].Val()
			end++
		}
		pipe := o.store.Redis.Pipeline()
		some := ids[at:end]
		body, meta, tried := pipe.HMGet(ctx, b.Keys.Body(), some...), pipe.HMGet(ctx, b.Keys.Meta(), some...), pipe.HMGet(ctx, b.Keys.Attempts(), some...)
		if err := o.exec(ctx, pipe); err != nil {
			return nil, nil, nil, err
		}
		bodies, metas, attempts, at = append(bodies, body.Val()...), append(metas, meta.Val()...), append(attempts, tried.Val()...), end
	}
	return bodies, metas, attempts, nil
}

// exec runs a pipeline within the timeout of one call.
func (o *Operator) exec(ctx context.Context, pipe redis.Pipeliner) error {
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	_, err := pipe.Exec(ctx)
	return err
}

// Redriven says what became of dead letters that were to be redriven.
type Redriven struct {
	Moved   int // back in the list, or there already
	Unknown int // no dead letter of that id
	Full    int // left where they are: the bucket is full

	// FlowFull are left where they are because their flow is full, or would be one
	// more than the bucket may have.
	FlowFull int

	// GroupFull are left where they are because their group is full, or would be one
	// more than the bucket may have.
	GroupFull int

	Disabled int // left where they are: their flow is disabled
}

// What redrive.lua answers for a letter; anything else: it is none.
const (
	redriveMoved = iota + 1
	redriveFull
	redriveThere
	redriveFlowFull
	redriveGroupFull
	redriveDisabled
)

// count counts one letter by what redrive.lua answers.
func (r *Redriven) count(code int64) {
	switch code {
	case redriveMoved, redriveThere:
		r.Moved++
	case redriveFull:
		r.Full++
	case redriveFlowFull:
		r.FlowFull++
	case redriveGroupFull:
		r.GroupFull++
	case redriveDisabled:
		r.Disabled++
	default:
		r.Unknown++
	}
}

// Add counts more dead letters.
func (r *Redriven) Add(more Redriven) {
	r.Moved += more.Moved
	r.Unknown += more.Unknown
	r.Full += more.Full
	r.FlowFull += more.FlowFull
	r.GroupFull += more.GroupFull
	r.Disabled += more.Disabled
}

// Redrive puts dead letters back at the end of the list, with a fresh budget
// of attempts; they leave at the bucket's pace. It never passes the bucket's
// bound nor that of a group or a flow: what does not fit stays dead. One round trip for 200 ids;
// two where the bucket has flows.
func (d DeadControl) Redrive(ctx context.Context, ids ...string) (Redriven, error) {
	sum, err := d.op.redrive(ctx, d.bucket, ids)
	d.noteRedriven(ctx, sum)
	return sum, err
}

// noteRedriven logs and counts what was moved, also where an error came then.
func (d DeadControl) noteRedriven(ctx context.Context, sum Redriven) {
	if sum.Moved > 0 {
		d.control().note(ctx, d.bucket, metrics.ActionRedrive, "jobs", sum.Moved)
	}
}

func (o *Operator) redrive(ctx context.Context, bucket string, ids []string) (Redriven, error) {
	var sum Redriven
	for len(ids) > 0 {
		n := min(len(ids), maxRedrive)
		codes, err := o.redriveSome(ctx, bucket, ids[:n], 0)
		for _, code := range codes {
			sum.count(code)
		}
		if err != nil {
			return sum, err
		}
		ids = ids[n:]
	}
	return sum, nil
}

// redriveSome redrives maxRedrive letters at most and returns the code of each. Of spare places of a bound, one is left free.
func (o *Operator) redriveSome(ctx context.Context, bucket string, ids []string, spare int) ([]int64, error) {
	b, err := o.store.Use(ctx, bucket)
	if err != nil {
		return nil, err
	}
	names, err := o.store.FlowsOf(ctx, b, ids...)
	if err != nil {
		return nil, err
	}
	var flows store.FlowSet
	jobs := make([]any, 0, 2*len(ids))
	for i, id := range ids {
		jobs = append(jobs, id, flows.Number(names[i]))
	}
	args := slices.Concat([]any{store.WakeChannel, bucket, b.Levels(), len(flows.Names), spare}, flows.Args(), jobs)
	r, err := o.store.RunConfigured(ctx, b, lua.Redrive, b.Keys.Of(lua.Redrive, flows.Names...), args...)
	if err != nil {
		return nil, fmt.Errorf("bucket %q: %w", bucket, err)
	}
	codes := make([]int64, len(ids))
	for i := range codes {
		codes[i] = r.Int()
	}
	if r.Err() != nil {
		return nil, fmt.Errorf("bucket %q: script redrive: %w", bucket, r.Err())
	}
	return codes, nil
}

// RedriveAll redrives up to limit dead letters, the oldest first, until all
// are moved or the bucket is full.
func (d DeadControl) RedriveAll(ctx context.Context, limit int) (Redriven, error) {
	sum, err := d.op.redriveAll(ctx, d.bucket, limit)
	d.noteRedriven(ctx, sum)
	return sum, err
}

func (o *Operator) redriveAll(ctx context.Context, bucket string, limit int) (Redriven, error) {
	var sum Redriven
	b, err := o.store.Bucket(bucket)
	if err != nil {
		return sum, err
	}
	for sum.Moved < limit {
		// Those whose flow or group takes none stay where they are, ahead of others.
		ids, err := o.oldestDead(ctx, b, sum.FlowFull+sum.GroupFull+sum.Disabled+sum.Unknown, min(maxRedrive, limit-sum.Moved))
		if err != nil || len(ids) == 0 {
			return sum, err
		}
		part, err := o.redrive(ctx, bucket, ids)
		sum.Add(part)
		if err != nil || part.Full > 0 {
			return sum, err
		}
	}
	return sum, nil
}

func (o *Operator) oldestDead(ctx context.Context, b *store.Bucket, offset, n int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, o.store.Timeout)
	defer cancel()
	ids, err := o.store.Redis.ZRange(ctx, b.Keys.Dead(), int64(offset), int64(offset+n-1)).Result()
	if err != nil {
		return nil, fmt.Errorf("bucket %q: list dead letters: %w", b.Name, err)
	}
	return ids, nil
}

// Drop drops a dead letter and returns the state the job is in now:
// [shaper.StateDropped] if that worked, now or before. One round trip; two where the bucket has flows.
func (d DeadControl) Drop(ctx context.Context, id string) (shaper.State, error) {
	state, err := d.op.store.Cancel(ctx, d.bucket, id, shaper.StateDead)
	if state == shaper.StateDropped {
		d.control().note(ctx, d.bucket, metrics.ActionDrop, "job", id)
	}
	return state, err
}

// DropAll drops all dead letters that there are now and returns how many.
// One round trip for each.
func (d DeadControl) DropAll(ctx context.Context) (int, error) {
	dropped, err := d.op.dropAll(ctx, d.bucket)
	if dropped > 0 {
		d.control().note(ctx, d.bucket, metrics.ActionDrop, "jobs", dropped)
	}
	return dropped, err
}

func (o *Operator) dropAll(ctx context.Context, bucket string) (int, error) {
	b, err := o.store.Bucket(bucket)
	if err != nil {
		return 0, err
	}
	dropped := 0
	for {
		ids, err := o.oldestDead(ctx, b, 0, maxRedrive)
		if err != nil || len(ids) == 0 {
			return dropped, err
		}
		for _, id := range ids {
			state, err := o.store.Cancel(ctx, bucket, id, shaper.StateDead)
			if err != nil {
				return dropped, err
			}
			if state == shaper.StateDropped {
				dropped++
			}
		}
	}
}
