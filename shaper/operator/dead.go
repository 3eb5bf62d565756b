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

// DeadLetters is the handle of the dead letters of a bucket. Changes need an author: see [Operator.As].
type DeadLetters struct {
	op     *Operator
	bucket string
	bare   bool // without payloads
}

// Dead returns the handle of the dead letters of the bucket.
func (b Bucket) Dead() DeadLetters { return DeadLetters{b.op, b.name, b.bare} }

// List returns dead letters, newest first, at most limit of them from offset on, also of a bucket that was removed from the configuration. It returns
// fewer if they are large: it stops at about a mebibyte, or at 16 MiB of what Redis keeps of them. Two round trips, one more for a removed bucket,
// and one for each mebibyte.
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

// deadLetters reads the first of some dead letters, and returns how many ids it read. It leaves out dead letters that are gone meanwhile.
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
			info.Last.Detail = err.Error() // listed all the same, so that it can be dropped
		}
		letters = append(letters, deadLetter{info, jobs[i].size()})
	}
	return letters, len(jobs), nil
}

// Redriven counts what became of dead letters that were to be redriven.
type Redriven struct {
	Moved   int // back in the list, or there already
	Unknown int // no dead letter of that id
	Full    int // not moved: the bucket is full

	// FlowFull were not moved because their flow is full, or would be one more than the bucket may have.
	FlowFull int

	// GroupFull were not moved because their group is full, or would be one more than the bucket may have.
	GroupFull int

	Disabled int // not moved: their flow is disabled
}

// count counts one dead letter by the reply of redrive.lua.
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

// Redrive puts dead letters back at the end of the list, with all their attempts; they are sent at the bucket's pace. It never exceeds the bound of
// the bucket, a group or a flow: what does not fit stays dead. One round trip for 200 ids; two if the bucket has flows, and two more if it is not
// configured here.
func (d DeadLetters) Redrive(ctx context.Context, ids ...string) (Redriven, error) {
	sum, err := d.op.redrive(ctx, d.bucket, ids)
	var job []any
	if len(ids) == 1 {
		job = []any{"job", ids[0]}
	}
	d.noteRedriven(ctx, sum, job...)
	return sum, err
}

// noteRedriven logs and counts what was moved, also if an error followed. args describe which dead letters were meant.
func (d DeadLetters) noteRedriven(ctx context.Context, sum Redriven, args ...any) {
	if sum.Moved > 0 {
		d.op.note(ctx, d.bucket, metrics.ActionRedrive, append([]any{"jobs", sum.Moved}, args...)...)
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

// redriveSome redrives at most maxRedrive dead letters and returns the code of each. It leaves 1/spare of each bound free.
func (o *Operator) redriveSome(ctx context.Context, bucket string, ids []string, spare int) ([]int64, error) {
	if err := o.hasAuthor(); err != nil {
		return nil, err
	}
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
func (d DeadLetters) RedriveAll(ctx context.Context, limit int) (Redriven, error) {
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
		// Dead letters whose flow or group is full stay where they are, ahead of others.
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
func (d DeadLetters) Drop(ctx context.Context, id string) (shaper.State, error) {
	state, err := d.op.cancel(ctx, d.bucket, id, shaper.StateDead)
	if state == shaper.StateDropped {
		d.op.note(ctx, d.bucket, metrics.ActionDrop, "job", id)
	}
	return state, err
}

// DropAll drops all current dead letters and returns how many. It takes as many round trips for each as Drop.
func (d DeadLetters) DropAll(ctx context.Context) (int, error) {
	dropped, err := d.op.dropAll(ctx, d.bucket)
	if dropped > 0 {
		d.op.note(ctx, d.bucket, metrics.ActionDrop, "jobs", dropped)
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
			state, err := o.cancel(ctx, bucket, id, shaper.StateDead)
			if err != nil {
				return dropped, err
			}
			if state == shaper.StateDropped {
				dropped++
			}
		}
	}
}
