package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// maxRedrive is how many dead letters one script moves.
const maxRedrive = 200

// DeadLetters are those of a bucket, to look at.
type DeadLetters struct {
	op     *Operator
	bucket string
	bare   bool // without payloads
}

// Dead names the dead letters of a bucket.
func (b Bucket) Dead() DeadLetters { return DeadLetters{b.op, b.name, b.bare} }

// DeadControl are the dead letters of a bucket, to look at, to redrive and to drop.
type DeadControl struct {
	DeadLetters
	by string
}

// Dead names the dead letters of a bucket, to change them.
func (b BucketControl) Dead() DeadControl { return DeadControl{b.Bucket.Dead(), b.by} }

func (d DeadControl) control() control { return control{d.op, d.by} }

// List returns dead letters, the newest first: limit of them at most, from
// offset on, also of a bucket that has left the configuration. It returns fewer where they are large: about a mebibyte, and of what
// Redis keeps of them 16 MiB. Two round trips, one more of such a bucket, and one for each mebibyte.
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
	infos, reader, room := make([]shaper.JobInfo, 0, len(ids)), o.newJobReader(b, d.bare), page{most: limit}
	for len(ids) > 0 && reader.left > 0 {
		letters, read, err := deadLetters(ctx, reader, ids)
		if err != nil {
			return infos, err
		}
		for i := range letters {
			if !room.takes(letters[i].size) {
				return infos, nil
			}
			infos = append(infos, letters[i].JobInfo)
		}
		ids = ids[read:]
	}
	return infos, nil
}

// deadLetter is a dead letter and the bytes that were read of it.
type deadLetter struct {
	shaper.JobInfo

	size int
}

// deadLetters reads the first of some dead letters, and says of how many ids. Letters that went meanwhile are left out.
func deadLetters(ctx context.Context, r *jobReader, ids []redis.Z) (letters []deadLetter, read int, err error) {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i], _ = id.Member.(string)
	}
	jobs, err := r.read(ctx, names)
	if err != nil {
		return nil, 0, fmt.Errorf("bucket %q: read dead letters: %w", r.b.Name, err)
	}
	letters = make([]deadLetter, 0, len(jobs))
	for i := range jobs {
		if jobs[i].body == "" {
			continue // dropped or redriven between the round trips
		}
		info, err := jobs[i].info(shaper.JobInfo{ID: names[i], Bucket: r.b.Name, State: shaper.StateDead, Died: time.UnixMicro(int64(ids[i].Score))})
		if err != nil {
			info.Last.Detail = err.Error() // it is listed all the same, so that it can be dropped
		}
		letters = append(letters, deadLetter{info, jobs[i].size()})
	}
	return letters, len(jobs), nil
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

// count counts one letter by what redrive.lua answers.
func (r *Redriven) count(code int64) {
	switch code {
	case lua.RedriveMoved, lua.RedriveThere:
		r.Moved++
	case lua.RedriveFull:
		r.Full++
	case lua.RedriveFlowFull:
		r.FlowFull++
	case lua.RedriveGroupFull:
		r.GroupFull++
	case lua.RedriveDisabled:
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
// two where the bucket has flows, and two more where it is not configured here.
func (d DeadControl) Redrive(ctx context.Context, ids ...string) (Redriven, error) {
	sum, err := d.op.redrive(ctx, d.bucket, ids)
	var job []any
	if len(ids) == 1 {
		job = []any{"job", ids[0]}
	}
	d.noteRedriven(ctx, sum, job...)
	return sum, err
}

// noteRedriven logs and counts what was moved, also where an error came then. args say which letters were meant.
func (d DeadControl) noteRedriven(ctx context.Context, sum Redriven, args ...any) {
	if sum.Moved > 0 {
		d.control().note(ctx, d.bucket, metrics.ActionRedrive, append([]any{"jobs", sum.Moved}, args...)...)
	}
}

func (o *Operator) redrive(ctx context.Context, bucket string, ids []string) (Redriven, error) {
	var sum Redriven
	err := lua.InParts(ids, maxRedrive, func(some []string) error {
		codes, err := o.redriveSome(ctx, bucket, some, 0)
		for _, code := range codes {
			sum.count(code)
		}
		return err
	})
	return sum, err
}

// redriveSome redrives maxRedrive letters at most and returns the code of each. Of spare places of a bound, one is left free.
func (o *Operator) redriveSome(ctx context.Context, bucket string, ids []string, spare int) ([]int64, error) {
	b, err := o.store.UseAny(ctx, bucket)
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
	args := slices.Concat([]any{store.WakeChannel, b.Keys.Name, b.Levels(), len(flows.Names), spare}, flows.Args(), jobs)
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
	b, err := o.store.UseAny(ctx, bucket)
	if err != nil {
		return sum, err
	}
	for sum.Moved < limit {
		// Letters whose flow or group is full stay where they are, ahead of others.
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
// [shaper.StateDropped] if that worked, now or before. One round trip; two where the bucket has flows, and two more where it is not
// configured here.
func (d DeadControl) Drop(ctx context.Context, id string) (shaper.State, error) {
	state, err := d.op.store.Cancel(ctx, d.bucket, id, shaper.StateDead)
	if state == shaper.StateDropped {
		d.control().note(ctx, d.bucket, metrics.ActionDrop, "job", id)
	}
	return state, err
}

// DropAll drops all dead letters that there are now and returns how many.
// As many round trips for each as Drop has.
func (d DeadControl) DropAll(ctx context.Context) (int, error) {
	dropped, err := d.op.dropAll(ctx, d.bucket)
	if dropped > 0 {
		d.control().note(ctx, d.bucket, metrics.ActionDrop, "jobs", dropped)
	}
	return dropped, err
}

func (o *Operator) dropAll(ctx context.Context, bucket string) (int, error) {
	b, err := o.store.UseAny(ctx, bucket)
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
