package test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// book is what those who enqueue, deliver and operate know of each job.
type book struct {
	mu   sync.Mutex
	jobs map[string]*soakJob
	ids  []string // in the order in which they were asked for
	full bool     // somebody was refused by the limit
}

type soakJob struct {
	shaper.Job
	in         bool
	first      int       // answers that it is new
	cancelled  time.Time // when that was known; zero if it was not
	dropped    bool
	deliveries []soakDelivery
}

type soakDelivery struct {
	process int
	number  int
	at      time.Time
	result  shaper.Result
	panics  bool
}

// soakID names a job by the places where it belongs, which [pathsOf] reads.
func soakID(bucket, group, flow string, n int64) string {
	return fmt.Sprintf("%s_%s_%s_%d", bucket, group, flow, n)
}

// number is the last part of an id.
func number(id string) int {
	n, _ := strconv.Atoi(id[strings.LastIndexByte(id, '_')+1:])
	return n
}

// pathsOf are the places where a job counts: its bucket, the pool of that, its group and its flow.
func pathsOf(id string) []string {
	parts := strings.Split(id, "_")
	bucket, group, flow := parts[0], parts[1], parts[2]
	switch bucket {
	case flowsBucket:
		return []string{bucket, soakPool, bucket + "/" + flow}
	case groupsBucket:
		return []string{bucket, soakPool, bucket + "/" + group, bucket + "/" + group + "/" + flow}
	}
	return []string{bucket}
}

// asked notes that a job is about to be enqueued.
func (b *book) asked(job shaper.Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.jobs == nil {
		b.jobs = map[string]*soakJob{}
	}
	if b.jobs[job.ID] == nil {
		b.jobs[job.ID] = &soakJob{Job: job}
		b.ids = append(b.ids, job.ID)
	}
}

// change changes what is known of a job.
func (b *book) change(id string, change func(*soakJob)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if job := b.jobs[id]; job != nil {
		change(job)
	}
}

func (b *book) isIn(id string) (in bool) {
	b.change(id, func(j *soakJob) { in = j.in })
	return in
}

func (b *book) admitted(id string)   { b.change(id, func(j *soakJob) { j.in = true }) }
func (b *book) wasDropped(id string) { b.change(id, func(j *soakJob) { j.dropped = true }) }
func (b *book) wasCancelled(id string, at time.Time) {
	b.change(id, func(j *soakJob) {
		if j.cancelled.IsZero() {
			j.cancelled = at
		}
	})
}

func (b *book) delivered(id string, d soakDelivery) {
	b.change(id, func(j *soakJob) { j.deliveries = append(j.deliveries, d) })
}

// limited notes that a job was refused by the limit.
func (b *book) limited(job shaper.Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = b.full || job.Identity.Tier == ""
}

// some is a job that was asked for, any of them.
func (b *book) some(r *rand.Rand) (shaper.Job, bool) { return b.oneOf(r, 1<<30) }

// late is one of the last ones.
func (b *book) late(r *rand.Rand) (shaper.Job, bool) { return b.oneOf(r, 100) }

func (b *book) oneOf(r *rand.Rand, last int) (shaper.Job, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ids) == 0 {
		return shaper.Job{}, false
	}
	last = min(last, len(b.ids))
	return b.jobs[b.ids[len(b.ids)-1-r.IntN(last)]].Job, true
}

// all are the jobs, in the order in which they were asked for. It is for the end.
func (b *book) all() []*soakJob {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*soakJob, len(b.ids))
	for i, id := range b.ids {
		all[i] = b.jobs[id]
	}
	return all
}
