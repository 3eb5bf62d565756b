package operator

import (
	"context"
	"fmt"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Bounds of a list in bytes, of bodies, metas and attempts. A list continues from its cursor.
const (
	maxBytesRead   = 1 << 20  // of one script: more would not arrive in time over a slow link. A job above it is read alone
	maxBytesFound  = 1 << 20  // of the jobs in one reply; one job is in it however large it is
	maxBytesLooked = 16 << 20 // that Redis reads for one reply
)

// storedJob is what Redis keeps of a job: a missing part is "".
type storedJob struct{ body, meta, attempts string }

func (s *storedJob) size() int { return len(s.body) + len(s.meta) + len(s.attempts) }

// info returns info with what Redis keeps of the job.
func (s *storedJob) info(info shaper.JobInfo) (shaper.JobInfo, error) {
	info.Position, info.LastAttempts = -1, codec.Attempts(s.attempts)
	err := codec.FillJob(&info, s.body, s.meta)
	return info, err
}

// jobReader reads jobs for one list.
type jobReader struct {
	op   *Operator
	b    *store.Bucket
	bare bool // it leaves out payloads
	left int  // bytes that it may still have Redis read
}

func (o *Operator) newJobReader(b *store.Bucket, bare bool) *jobReader {
	return &jobReader{op: o, b: b, bare: bare, left: maxBytesLooked}
}

// read reads the first of some jobs, about a mebibyte, and none once it has read as much as it may. The caller asks again for the others.
func (r *jobReader) read(ctx context.Context, ids []string) ([]storedJob, error) {
	if len(ids) == 0 || r.left <= 0 {
		return nil, nil
	}
	args := []any{min(maxBytesRead, r.left), store.BoolArg(r.bare)}
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := r.op.store.Run(ctx, lua.InspectJobs, r.b.Keys.Of(lua.InspectJobs), args...)
	if err != nil {
		return nil, err
	}
	in := lua.NewReader(reply)
	r.left -= int(in.Int())
	var jobs []storedJob
	for in.Left() > 0 {
		jobs = append(jobs, storedJob{in.Text(), in.Text(), in.Text()})
	}
	if in.Err() == nil && len(jobs) == 0 {
		return nil, fmt.Errorf("script inspect_jobs: it has read none of %d jobs", len(ids))
	}
	if in.Err() != nil {
		return nil, fmt.Errorf("script inspect_jobs: %w", in.Err())
	}
	return jobs, nil
}

// page collects the jobs of one reply.
type page struct{ jobs, bytes, most int }

// takes counts a job of a size, and reports whether the reply has room for it.
func (p *page) takes(size int) bool {
	if p.jobs >= p.most || p.jobs > 0 && p.bytes+size > maxBytesFound {
		return false
	}
	p.jobs, p.bytes = p.jobs+1, p.bytes+size
	return true
}

func (p *page) full() bool { return p.jobs >= p.most || p.bytes >= maxBytesFound }
