package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

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

// errReply says that a script answered something that this program does not
// understand.
var errReply = errors.New("script allow answered what is no answer: are there versions of this program that differ?")

// round is a batch of questions as one run of lua/allow.lua, in which questions
// that are the same travel as one.
type round struct {
	gate    *gate
	batch   []*question
	keys    []string
	limits  []*compiledLimit
	of      []int // limit of each state
	latest  []int // line that asked last about each state
	states  map[string]int
	groups  []group
	args    []any
	numbers []int64
}

// takeIfAllowed is a number of times: take what is there, up to the cost, if the
// question before it was allowed.
const takeIfAllowed = -1

// group is a line of the script: the same question, some times. One of no times,
// or of takeIfAllowed, takes what is there, up to the cost.
type group struct {
	state     int
	cost      int64
	times     int64
	questions []*question
	reports   bool // the answer is of no interest
}

var rounds = sync.Pool{New: func() any { return &round{states: map[string]int{}} }}

func (g *gate) newRound(batch []*question) *round {
	r := rounds.Get().(*round)
	r.gate, r.batch = g, batch
	for _, q := range batch {
		state := r.state(q)
		if q.report > 0 {
			r.add(state, q.report, 0, true)
		}
		if q.cost == 0 {
			continue // it only reports
		}
		// Questions about different states do not change each other's answers, so
		// that only those about the same one must keep their order.
		if last := r.latest[state]; last >= 0 && r.groups[last].cost == q.cost && r.groups[last].times > 0 {
			r.groups[last].times++
		} else {
			r.add(state, q.cost, 1, false)
		}
		line := &r.groups[r.latest[state]]
		line.questions = append(line.questions, q)
		if q.extra > 0 {
			r.add(state, q.extra, takeIfAllowed, false)
			last := &r.groups[len(r.groups)-1]
			last.questions = append(last.questions, q)
		}
	}
	return r
}

func (r *round) add(state int, cost, times int64, reports bool) {
	if len(r.groups) < cap(r.groups) {
		r.groups = r.groups[:len(r.groups)+1]
	} else {
		r.groups = append(r.groups, group{})
	}
	g := &r.groups[len(r.groups)-1]
	*g = group{state: state, cost: cost, times: times, reports: reports, questions: g.questions[:0]}
	r.latest[state] = len(r.groups) - 1
}

// state is the number of the state that a question is about, from 0.
func (r *round) state(q *question) int {
	last := len(r.keys) - 1
	if last >= 0 && r.keys[last] == q.key {
		return last
	}
	if len(r.batch) > 1 {
		if n, ok := r.states[q.key]; ok {
			return n
		}
		r.states[q.key] = last + 1
	}
	r.keys, r.latest = append(r.keys, q.key), append(r.latest, -1)
	for n := len(r.limits) - 1; n >= 0; n-- {
		if r.limits[n] == q.compiledLimit {
			r.of = append(r.of, n)
			return last + 1
		}
	}
	r.limits = append(r.limits, q.compiledLimit)
	r.of = append(r.of, len(r.limits)-1)
	return last + 1
}

func (r *round) release() {
	for i := range r.groups {
		clear(r.groups[i].questions)
	}
	clear(r.keys)
	clear(r.limits)
	clear(r.args)
	clear(r.states)
	*r = round{keys: r.keys[:0], limits: r.limits[:0], of: r.of[:0], latest: r.latest[:0], states: r.states, groups: r.groups[:0], args: r.args[:0]}
	rounds.Put(r)
}

// exchange runs the script. An error is one of all questions.
func (r *round) exchange(ctx context.Context) error {
	if err := r.gate.limiter.breaker.Run(func() error { return r.run(ctx) }); err != nil {
		return err
	}
	if len(r.numbers) == 0 {
		return errReply
	}
	switch r.numbers[0] {
	case statusStale:
		return errStale
	case statusUnconfigured:
		r.gate.unconfigured(r.batch[0].rev)
	}
	return nil
}

func (r *round) run(ctx context.Context) (err error) {
	limiter := r.gate.limiter
	keys := append(append(make([]string, 0, 1+len(r.keys)+2*len(r.limits)), r.gate.conf), r.keys...)
	for _, f := range r.limits {
		keys = append(keys, f.keys[:]...)
	}
	q := r.batch[0]
	r.args = r.lines(append(r.args[:0], q.rev, limiter.now, string(q.params.Algorithm), len(r.limits)))
	r.numbers, err = lua.Allow.Numbers(ctx, limiter.redis, keys, r.args...)
	return err
}

// lines appends the settings, the states and the questions.
func (r *round) lines(args []any) []any {
	for _, f := range r.limits {
		args = append(args, f.args[:]...)
	}
	for _, n := range r.of {
		args = append(args, n+1)
	}
	for i := range r.groups {
		line := &r.groups[i]
		args = append(args, line.state+1, line.cost, line.times)
	}
	return args
}

// decode gives every question its answer, or the error.
func (r *round) decode(err error) {
	if err == nil {
		err = r.check()
	}
	if err != nil {
		for _, q := range r.batch {
			q.err = err
		}
		return
	}
	in := r.numbers[1:]
	for i := range r.groups {
		line := &r.groups[i]
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
			after := (passed - int64(n) - 1) * line.cost // what was spent after this one
			q.verdict, q.remaining, q.wait, q.reset = verdictAllowed, remaining+after, 0, q.earlierReset(reset, slack, after)
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
		for i := range r.groups {
			if int64(r.groups[i].state) == state-1 {
				for _, q := range r.groups[i].questions {
					q.shared = true
				}
			}
		}
	}
}

// check reports whether the reply is as long as the questions want it.
func (r *round) check() error {
	in := r.numbers[1:]
	for i := range r.groups {
		line := &r.groups[i]
		n := int64(3)
		if line.times > 0 {
			if len(in) == 0 || in[0] < 0 || in[0] > line.times {
				return fmt.Errorf("%w: %v", errReply, r.numbers)
			}
			n = 4
			if in[0] < line.times {
				n += 4
			}
		}
		if int64(len(in)) < n {
			return fmt.Errorf("%w: %v", errReply, r.numbers)
		}
		in = in[n:]
	}
	if len(in) > len(r.keys) || slices.ContainsFunc(in, func(state int64) bool { return state < 1 || state > int64(len(r.keys)) }) {
		return fmt.Errorf("%w: %v", errReply, r.numbers)
	}
	return nil
}

// isolated reports whether an error may be of one key of several: Redis gave an
// answer, before anything was written, that does not concern all.
func isolated(err error) bool {
	if err == nil || redisconn.Unavailable(err) {
		return false
	}
	var answer redis.Error
	return errors.As(err, &answer)
}
