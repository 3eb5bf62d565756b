package producer

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/lua/coalesce"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// producerBucket is a bucket as its producers see it.
type producerBucket struct {
	*store.Bucket
	enqueueKeys func() []string          // the first keys of that script, made once, for the first job
	force       atomic.Pointer[limitSet] // the effective limits; nil until they were read
	quotas      atomic.Bool              // the script wants the keys that buckets with quotas or a timetable need
	refusals    refusals
	spreads     admission.Spread
	breaker     *redisconn.Breaker // one for all buckets, unless Redis is a cluster
	queue       coalesce.Queue[*entry]
	answered    atomic.Int64 // calls of the script that Redis answered
}

func (c *Client) newBucket(state *store.Bucket) *producerBucket {
	b := &producerBucket{Bucket: state, breaker: c.breaker}
	b.enqueueKeys = sync.OnceValue(func() []string { return state.Keys.Fixed(nil, lua.Enqueue) })
	if c.apart {
		b.breaker = c.breaker.Apart("bucket", b.Name)
	}
	b.queue = coalesce.Queue[*entry]{
		Max: enqueueBatch, MaxWeight: enqueueBatchBytes,
		Weigh:    func(t *entry) int { return len(t.sealed) },
		Owner:    func(t *entry) any { return t.call },
		Kind:     func(t *entry) [2]string { return flowKind(b.Levels(), &t.job) },
		MaxKinds: flowsOfScript(b.Levels()),
		Caller:   func(t *entry) string { return t.job.Caller },
		Turn:     func(t *entry) *int64 { return &t.turn },
		Send:     func(entries []*entry) func() { return c.sending(b, entries) },
	}
	return b
}

// setBuckets makes a producerBucket for each bucket of the store. A bucket that stays keeps its own.
func (c *Client) setBuckets() {
	before, after := *c.buckets.Load(), map[string]*producerBucket{}
	for _, b := range c.store.All() {
		if after[b.Name] = before[b.Name]; after[b.Name] == nil || after[b.Name].Bucket != b {
			after[b.Name] = c.newBucket(b)
		}
	}
	c.buckets.Store(&after)
}

// bucket returns the bucket of a name, or an error that says why there is none.
func (c *Client) bucket(name string) (*producerBucket, error) {
	if err := c.store.IfClosed(); err != nil {
		return nil, err
	}
	if b := (*c.buckets.Load())[c.store.CurrentName(name)]; b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("%w %q", shaper.ErrUnknownBucket, name)
}

// flowsOfScript returns how many flows one enqueue script may have: half as many if each may have a group of its own. So no script runs for 5 ms.
func flowsOfScript(levels int) int {
	if levels == codec.LevelsGroups {
		return enqueueBatchFlows / 2
	}
	return enqueueBatchFlows
}

// flowKind returns the key of a job's flow among the flows of its bucket.
func flowKind(levels int, job *shaper.Job) [2]string {
	switch levels {
	case codec.LevelsNone:
		return [2]string{}
	case codec.LevelsFlows:
		return [2]string{"", job.Flow}
	}
	return [2]string{job.Group, job.Flow}
}
