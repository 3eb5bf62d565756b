package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
)

// Statuses of lua/allow.lua.
const (
	statusDecided = iota
	statusStale
	statusUnconfigured
)

// errStale says that the limit was changed since its conf was read.
var errStale = errors.New("admission: the limit was changed")

// errReply says that this program does not understand the reply of a script.
var errReply = errors.New("the reply of script allow is not valid: do all processes run the same version?")

// allowCall is a batch of questions as one run of lua/allow.lua. Equal questions are sent as one.
type allowCall struct {
	gate    *gate
	batch   []*question
	keys    []string
	limits  []*compiledLimit
	of      []int // limit of each state
	latest  []int // index of the line that asked most recently about each state
	states  map[string]int
	groups  []group
	numbers []int64
}

// takeIfAllowed replaces the number of times in a line: take what is available, up to the cost, if the previous question was allowed.
const takeIfAllowed = -1

// group is a line of the script: the same question, repeated a number of times. With 0 times, or with takeIfAllowed, the line takes what is
// available, up to the cost.
type group struct {
	state     int
	cost      int64
	times     int64
	questions []*question
	reports   bool // the answer is ignored
}

func (g *gate) newAllowCall(batch []*question) *allowCall {
	c := &allowCall{gate: g, batch: batch}
	if len(batch) > 1 {
		c.states = make(map[string]int)
	}
	for _, q := range batch {
		state := c.state(q)
		if q.report > 0 {
			c.add(state, q.report, 0, true)
		}
		if q.cost == 0 {
			continue // it only reports
		}
		// Questions about different states do not change each other's answers. Only questions about the same state must keep their order.
		if last := c.latest[state]; last >= 0 && c.groups[last].cost == q.cost && c.groups[last].times > 0 {
			c.groups[last].times++
		} else {
			c.add(state, q.cost, 1, false)
		}
		line := &c.groups[c.latest[state]]
		line.questions = append(line.questions, q)
		if q.extra > 0 {
			c.add(state, q.extra, takeIfAllowed, false)
			last := &c.groups[len(c.groups)-1]
			last.questions = append(last.questions, q)
		}
	}
	return c
}

func (c *allowCall) add(state int, cost, times int64, reports bool) {
	c.groups = append(c.groups, group{state: state, cost: cost, times: times, reports: reports})
	c.latest[state] = len(c.groups) - 1
}

// state returns the number, from 0, of the state that a question is about.
func (c *allowCall) state(q *question) int {
	last := len(c.keys) - 1
	if last >= 0 && c.keys[last] == q.key {
		return last
	}
	if n, ok := c.states[q.key]; ok {
		return n
	}
	if c.states != nil {
		c.states[q.key] = last + 1
	}
	c.keys, c.latest = append(c.keys, q.key), append(c.latest, -1)
	for n := len(c.limits) - 1; n >= 0; n-- {
		if c.limits[n] == q.compiledLimit {
			c.of = append(c.of, n)
			return last + 1
		}
	}
	c.limits = append(c.limits, q.compiledLimit)
	c.of = append(c.of, len(c.limits)-1)
	return last + 1
}

// exchange runs the script. An error is one of all questions.
func (c *allowCall) exchange(ctx context.Context) error {
	if err := c.gate.limiter.breaker.Run(func() error { return c.run(ctx) }); err != nil {
		return err
	}
	if len(c.numbers) == 0 {
		return errReply
	}
	switch c.numbers[0] {
	case statusStale:
		return errStale
	case statusUnconfigured:
		c.gate.unconfigured(c.batch[0].rev)
	}
	return nil
}

func (c *allowCall) run(ctx context.Context) (err error) {
	limiter := c.gate.limiter
	keys := append(append(make([]string, 0, 1+len(c.keys)+2*len(c.limits)), c.gate.conf), c.keys...)
	for _, f := range c.limits {
		keys = append(keys, f.keys[:]...)
	}
	args := c.args()
	if err := lua.CheckSize(keys, args); err != nil && len(c.batch) > 1 {
		return err
	}
	c.numbers, err = lua.Allow.Numbers(ctx, limiter.redis, keys, args...)
	return err
}

// args returns the arguments for the limits, the states and the questions; for a lone question, only its cost.
func (c *allowCall) args() []any {
	f := c.limits[0]
	args := append(make([]any, 0, 7+len(f.args)*len(c.limits)+len(c.of)+3*len(c.groups)),
		f.rev, c.gate.limiter.now, string(f.params.Algorithm), f.MaxKeys, f.life, len(c.limits), c.batch[0].namer)
	for _, f := range c.limits {
		args = append(args, f.args[:]...)
	}
	if len(c.groups) == 1 && c.groups[0].times == 1 {
		return append(args, c.groups[0].cost)
	}
	for _, n := range c.of {
		args = append(args, n+1)
	}
	for i := range c.groups {
		line := &c.groups[i]
		args = append(args, line.state+1, line.cost, line.times)
	}
	return args
}

// decode sets the answer of every question, or the error.
func (c *allowCall) decode(err error) {
	if err == nil {
		err = c.check()
	}
	if err != nil {
		for _, q := range c.batch {
			q.err = err
		}
		return
	}
	in := c.numbers[1:]
	for i := range c.groups {
		line := &c.groups[i]
		if line.times <= 0 {
			if !line.reports {
				q := line.questions[0]
				q.taken, q.remaining, q.reset = in[0], in[1], in[2]
			}
			in = in[3:]
			continue
		}
		passed, remaining, reset, slack := in[0], in[1], in[2], in[3]
		in = in[4:]
		for n, q := range line.questions[:passed] {
			after := (passed - int64(n) - 1) * line.cost // spent by later questions of the line
			q.verdict, q.remaining, q.wait, q.reset = lua.Allowed, remaining+after, 0, q.earlierReset(reset, slack, after)
		}
		if passed == line.times {
			continue
		}
		for _, q := range line.questions[passed:] {
			q.verdict, q.wait, q.remaining, q.reset = in[0], in[1], in[2], in[3]
		}
		in = in[4:]
	}
	for _, state := range in {
		for i := range c.groups {
			if int64(c.groups[i].state) == state-1 {
				for _, q := range c.groups[i].questions {
					q.shared = true
				}
			}
		}
	}
}

// check reports whether the reply is as long as the questions want it.
func (c *allowCall) check() error {
	in := c.numbers[1:]
	for i := range c.groups {
		line := &c.groups[i]
		n := int64(3)
		if line.times > 0 {
			if len(in) == 0 || in[0] < 0 || in[0] > line.times {
				return fmt.Errorf("%w: %v", errReply, c.numbers)
			}
			n = 4
			if in[0] < line.times {
				n += 4
			}
		}
		if int64(len(in)) < n {
			return fmt.Errorf("%w: %v", errReply, c.numbers)
		}
		in = in[n:]
	}
	if len(in) > len(c.keys) || slices.ContainsFunc(in, func(state int64) bool { return state < 1 || state > int64(len(c.keys)) }) {
		return fmt.Errorf("%w: %v", errReply, c.numbers)
	}
	return nil
}

// isolated reports whether an error may concern one key of several: before anything was written, Redis gave a reply that does not concern all.
func isolated(err error) bool {
	if err == nil || redisconn.Unavailable(err) {
		return false
	}
	var answer redis.Error
	return errors.As(err, &answer)
}
