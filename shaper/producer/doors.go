package producer

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/lua/batch"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// door is a bucket as its producers see it.
type door struct {
	*store.Bucket
	enqueueKeys func() []string          // the first ones of that script, made once, for the first job
	force       atomic.Pointer[limitSet] // the limits in force; nil until they were read
	quotas      atomic.Bool              // the script wants the keys that buckets with quotas or a timetable need
	refusals    refusals
	breaker     *redisconn.Breaker // one for all doors, unless Redis is a cluster
	queue       batch.Queue[*ticket]
}

func (c *Client) newDoor(state *store.Bucket) *door {
	b := &door{Bucket: state, breaker: c.breaker}
	b.enqueueKeys = sync.OnceValue(func() []string { return state.Keys.Fixed(nil, lua.Enqueue) })
	if c.apart {
		b.breaker = c.breaker.Apart("bucket", b.Name)
	}
	b.queue = batch.Queue[*ticket]{
		Max: enqueueBatch, MaxWeight: enqueueBatchBytes,
		Weigh:    func(t *ticket) int { return len(t.sealed) },
		Owner:    func(t *ticket) any { return t.call },
		Kind:     func(t *ticket) [2]string { return flowKind(b.Levels(), &t.job) },
		MaxKinds: flowsOfScript(b.Levels()),
		Send:     func(tickets []*ticket) func() { return c.sending(b, tickets) },
	}
	return b
}

// setDoors has one door for each bucket of the store. A bucket that stays keeps its door.
func (c *Client) setDoors() {
	before, after := *c.doors.Load(), map[string]*door{}
	for _, b := range c.store.All() {
		if after[b.Name] = before[b.Name]; after[b.Name] == nil || after[b.Name].Bucket != b {
			after[b.Name] = c.newDoor(b)
		}
	}
	c.doors.Store(&after)
}

// door returns that of a bucket, or an error that says why there is none.
func (c *Client) door(bucket string) (*door, error) {
	if err := c.store.IfClosed(); err != nil {
		return nil, err
	}
	if b := (*c.doors.Load())[bucket]; b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("%w %q", shaper.ErrUnknownBucket, bucket)
}

// flowsOfScript is how many flows one enqueue script has at most: half as many where each may
// have a group of its own. With that no script runs for 5 ms.
func flowsOfScript(levels int) int {
	if levels == codec.LevelsGroups {
		return enqueueBatchFlows / 2
	}
	return enqueueBatchFlows
}

// flowKind names a job's flow among those of its bucket.
func flowKind(levels int, job *shaper.Job) [2]string {
	switch levels {
	case codec.LevelsNone:
		return [2]string{}
	case codec.LevelsFlows:
		return [2]string{"", job.Flow}
	}
	return [2]string{job.Group, job.Flow}
}
