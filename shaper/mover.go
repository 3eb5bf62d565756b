package shaper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/redisconn"
)

// Steps of move.lua.
const (
	stepFreeze = "freeze"
	stepThaw   = "thaw"
	stepGone   = "gone"
	stepExpect = "expect"
	stepClear  = "clear"
	stepReady  = "ready"
	stepOpen   = "open"
	stepRefuse = "refuse"
	stepDone   = "done"
	stepEvict  = "evict"
	stepKeep   = "keep"
)

// What move.lua answers.
const (
	moveDone          = 0
	moveNotConfigured = 1
	moveNotPaused     = 2
	moveInFlight      = 3
	moveOtherwise     = 4
	moveHoldsJobs     = 5
	moveHoldsMuch     = 6
	moveKept          = 7
)

const (
	moveTries = 8                      // of a round trip that fails, over some seconds
	moveAgain = 10                     // of a move that others have carried on meanwhile, or that they get in the way of
	movePoll  = 200 * time.Millisecond // between two looks at leases
)

// errOvertaken says that somebody else has carried the move on, or given it up.
var errOvertaken = errors.New("another one has carried on with the move")

var errGivenUp = errors.New("it was given up by another one, and the bucket is where it was")

// mover gives a bucket another tag. All that it does may be done again, by it or by another
// one that carries out the same move: it freezes the bucket where it is, copies all keys, and writes
// the new tag into the index, which is the moment from which on the bucket lives there.
// Before that it may be given up, and after it, it can only be completed.
type mover struct {
	store   *store
	name    string
	to      string // tag
	id      string // of the move
	by      string
	atMost  string        // see move.lua
	patient time.Duration // how long to wait for leases
	tell    func(MoveProgress)
	froze   string // id of the move by which this one has frozen the bucket, or has found it so
	sum     Moved
	copied  MoveProgress
}

// newMover makes one that moves a bucket to where the configuration has it.
func newMover(s *store, b *Bucket, by, atMost string) *mover {
	return &mover{store: s, name: b.Name, to: b.tag(), by: by, atMost: atMost, tell: func(MoveProgress) {}}
}

func (m *mover) keys(tag string) keys { return taggedKeys(tag, m.name) }

// again has a round trip made until Redis has answered it. A full Redis has.
func (m *mover) again(ctx context.Context, do func(ctx context.Context) error) error {
	wait := minFaultWait
	for try := 1; ; try++ {
		within, cancel := context.WithTimeout(ctx, m.store.timeout)
		err := do(within)
		cancel()
		if !redisconn.Unavailable(err) || isFull(err) || try == moveTries || ctx.Err() != nil {
			return err
		}
		if !sleep(ctx, wait) {
			return err
		}
		wait = min(2*wait, maxFaultWait)
	}
}

func isFull(err error) bool { return redis.HasErrorPrefix(err, "OOM") }

// step makes a step on the keys of a tag. other is the other tag.
func (m *mover) step(ctx context.Context, k keys, step, other string) (code, number int64, at mark, err error) {
	err = m.again(ctx, func(ctx context.Context) error {
		reply, err := m.store.run(ctx, lua.Move, k.forMove(), step, m.id, other, m.by, m.atMost, wakeChannel, m.name)
		if err != nil {
			return err
		}
		r := lua.NewReader(reply)
		code, number = r.Int(), r.Int()
		at = newMark([]string{r.Text(), r.Text(), r.Text(), r.Text(), r.Text(), r.Text()})
		return r.Err()
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", step, err)
	}
	return code, number, at, err
}

// must makes a step that only fails where another one was quicker.
func (m *mover) must(ctx context.Context, tag, step, other string) error {
	code, _, at, err := m.step(ctx, m.keys(tag), step, other)
	if err == nil && code != moveDone {
		err = fmt.Errorf("%w: %s at the tag %q: the mark there says %q", errOvertaken, step, tag, at.state)
	}
	return err
}

// run moves the bucket, or goes on with a move of it that is under way.
func (m *mover) run(ctx context.Context) (err error) {
	for range moveAgain {
		if err = m.once(ctx); !errors.Is(err, errOvertaken) && !errors.Is(err, errDiffers) {
			return err
		}
	}
	return err
}

func (m *mover) once(ctx context.Context) error {
	var lives string
	var known bool
	var at mark
	err := m.again(ctx, func(ctx context.Context) (err error) {
		if lives, known, err = m.store.tagOf(ctx, m.name); err == nil {
			at, err = m.store.readMark(ctx, m.keys(lives))
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !known:
		return fmt.Errorf("%w %q: Redis knows none, so there is nothing to move", ErrUnknownBucket, m.name)
	case at.state == stateGone && m.atMost == "":
		return errors.Join(errOvertaken, m.restoreTag(ctx, lives, at.tag))
	case at.state == stateReady || at.state == stateArrived: // a move to here, of which the end is left
		if m.atMost != "" && at.atMost == "" {
			return at.refusal(lives, lives)
		}
		ended := *m
		ended.to, ended.id = lives, at.move
		if err := ended.finish(ctx, at.tag); err != nil {
			return err
		}
		if m.sum.From == "" {
			m.sum.From = at.tag
		}
	}
	if m.froze != "" && lives != m.to && (at.state != stateFrozen || at.move != m.froze) {
		m.sum.From = ""
		return errGivenUp
	}
	if lives == m.to {
		if at.state == stateFrozen {
			return at.refusal(lives, lives)
		}
		m.sum.Already = m.sum.From == ""
		if m.atMost == "" {
			return m.must(ctx, lives, stepKeep, "")
		}
		return nil
	}
	return m.bring(ctx, lives)
}

// restoreTag writes the tag again to which a bucket has gone, if the index still has the one of before: a
// failover has lost what was written before the mark was.
func (m *mover) restoreTag(ctx context.Context, from, to string) error {
	return m.again(ctx, func(ctx context.Context) error {
		if lives, _, err := m.store.tagOf(ctx, m.name); err != nil || lives != from {
			return err
		}
		return m.store.redis.HSet(ctx, tagsKey, m.name, to).Err()
	})
}

// bring does all of a move.
func (m *mover) bring(ctx context.Context, from string) error {
	if err := m.freeze(ctx, from); err != nil {
		return err
	}
	m.sum.From = from
	complete, err := m.prepare(ctx, from)
	if err == nil && !complete {
		err = m.copyAll(ctx, from)
	}
	if err != nil {
		return err
	}
	if err := m.commit(ctx, from); err != nil {
		return err
	}
	return m.finish(ctx, from)
}

// commit writes the new tag into the index. Once the mark says ready, nobody gives the move up, and if the bucket
// is seen to be frozen by it after that, nobody has. Who is so late that others have completed it, and may have moved the
// bucket on, finds no such mark; so all three have to come in time.
func (m *mover) commit(ctx context.Context, from string) error {
	err := m.again(ctx, func(ctx context.Context) error {
		if err := m.must(ctx, m.to, stepReady, from); err != nil {
			return err
		}
		if under, err := m.underWay(ctx, from); err != nil || !under {
			return errors.Join(err, m.must(ctx, m.to, stepEvict, from), errOvertaken)
		}
		return m.store.redis.HSet(ctx, tagsKey, m.name, m.to).Err()
	})
	if err != nil {
		return fmt.Errorf("write its new tag: %w", err)
	}
	return nil
}

// freeze has nothing change any more where the bucket is, once no lease is out.
func (m *mover) freeze(ctx context.Context, from string) error {
	m.id = shortID(rand.Uint64()) //nolint:gosec // a name, not a secret
	for began := time.Now(); ; {
		code, number, at, err := m.step(ctx, m.keys(from), stepFreeze, m.to)
		if err != nil {
			m.sum.From = from // it may be frozen
			return err
		}
		switch code {
		case moveDone:
			if m.atMost != "" && at.atMost == "" { // an operator's
				return at.refusal(from, from)
			}
			m.id, m.froze = at.move, at.move
			return nil
		case moveNotConfigured:
			return fmt.Errorf("it has no settings in Redis under the tag %q, as if its keys were deleted by hand: a process with the configuration of before writes them anew", from)
		case moveNotPaused:
			return fmt.Errorf("%w: run dispatcher bucket pause %s first", ErrNotPaused, m.name)
		case moveHoldsJobs:
			return fmt.Errorf("%w: %d of its jobs are kept with the tag %q, the configuration wants %q: pause it, then run dispatcher bucket move %s",
				ErrTagChanged, number, from, m.to, m.name)
		case moveHoldsMuch:
			return fmt.Errorf("%w: it holds no jobs, but %d ids of settled ones and flows are kept with the tag %q, the configuration wants %q: pause it, then run dispatcher bucket move %s",
				ErrTagChanged, number, from, m.to, m.name)
		case moveKept:
			return fmt.Errorf("%w: an operator has moved it to the tag %q, the configuration wants %q: restart this process with the configuration of now, or, if the bucket is to leave, pause it, then run dispatcher bucket move %s",
				ErrTagChanged, from, m.to, m.name)
		case moveInFlight:
		default:
			if at.state == stateFrozen && at.atMost != "" && m.atMost == "" { // it moves by itself just now
				other := &mover{store: m.store, name: m.name, to: at.tag, by: at.by, atMost: at.atMost, tell: m.tell}
				return errors.Join(errOvertaken, other.run(ctx))
			}
			if at.state == stateGone && m.atMost == "" {
				return fmt.Errorf("%w: it has left the tag %q", errOvertaken, from)
			}
			return at.refusal(from, from)
		}
		m.tell(MoveProgress{Step: MoveWaits, InFlight: number})
		if waited := time.Since(began); waited >= m.patient {
			return fmt.Errorf("%d of its jobs are still in flight after %s: wait until they have ended, at the latest when their leases have run out", number, waited.Round(time.Second))
		}
		if !sleep(ctx, movePoll) {
			return context.Cause(ctx)
		}
	}
}

// prepare clears the place where the bucket comes to, unless all of it is there.
func (m *mover) prepare(ctx context.Context, from string) (complete bool, err error) {
	code, number, at, err := m.step(ctx, m.keys(m.to), stepExpect, from)
	if err == nil && code == moveHoldsJobs {
		var under bool
		if under, err = m.underWay(ctx, from); err == nil && !under {
			err = fmt.Errorf("%w: it lives under the tag %q", errOvertaken, m.to)
		}
	}
	switch {
	case err != nil:
		return false, err
	case code == moveHoldsJobs: // the move has not begun there
		if err := m.giveUp(ctx, from, &mark{move: m.id, tag: m.to}); err != nil {
			return false, err
		}
		m.sum.From = ""
		return false, fmt.Errorf("%d jobs are kept with the tag %q, where nobody looks for them now: the bucket lives under %q. They would be mixed up, so look at them first, and remove the keys %s*",
			number, m.to, from, m.keys(m.to).prefix)
	case code != moveDone && at.move == m.id && at.state == stateRefused: // who gave it up died before the end
		if err := m.giveUp(ctx, from, &mark{move: m.id, tag: m.to}); err != nil {
			return false, err
		}
		m.froze, m.sum.From = "", ""
		return false, fmt.Errorf("%w: it was given up", errOvertaken)
	case code != moveDone:
		return false, m.evict(ctx, from, &at)
	case at.state == stateReady:
		return true, nil
	case at.state == stateClearing:
		if err := m.drop(ctx, m.to, stateClearing); err != nil {
			return false, err
		}
	}
	return false, m.must(ctx, m.to, stepClear, from)
}

// underWay reports whether the bucket is frozen by this move.
func (m *mover) underWay(ctx context.Context, from string) (is bool, err error) {
	err = m.again(ctx, func(ctx context.Context) error {
		at, err := m.store.readMark(ctx, m.keys(from))
		is = at.state == stateFrozen && at.move == m.id
		return err
	})
	return is, err
}

// evict removes the mark of another move from where the bucket comes to, and has the caller begin again: as
// the bucket is frozen by this one, which came after it, that one was given up, and its mover late or dead.
func (m *mover) evict(ctx context.Context, from string, other *mark) error {
	under, err := m.underWay(ctx, from)
	if err != nil {
		return err
	}
	if under && other.move != m.id {
		late := *m
		late.id = other.move
		err = late.must(ctx, m.to, stepEvict, from)
	}
	return errors.Join(err, fmt.Errorf("%w: the mark at the tag %q says %q", errOvertaken, m.to, other.state))
}

// finish does what is left once the index has the new tag.
func (m *mover) finish(ctx context.Context, from string) error {
	if err := m.must(ctx, m.to, stepOpen, from); err != nil {
		return err
	}
	if m.atMost == "" {
		if err := m.must(ctx, m.to, stepKeep, from); err != nil {
			return err
		}
	}
	code, _, at, err := m.step(ctx, m.keys(from), stepGone, m.to)
	if err != nil {
		return err
	}
	if code != moveDone {
		return fmt.Errorf("%w: the mark at the tag %q says %q", errOvertaken, from, at.state)
	}
	m.tell(MoveProgress{Step: MoveRemoves, Entries: m.copied.Entries, Total: m.copied.Total})
	if err := m.drop(ctx, from, stateGone); err != nil {
		return err
	}
	if from != m.name { // the pool shares its slots among those that are in it
		err := m.again(ctx, func(ctx context.Context) error { return m.store.redis.HDel(ctx, poolBuckets(from), m.name).Err() })
		if err != nil {
			return fmt.Errorf("take it off pool %q: %w", from, err)
		}
	}
	return m.must(ctx, m.to, stepDone, from)
}

// giveUp lets the bucket be where it was, as long as that is possible.
func (m *mover) giveUp(ctx context.Context, from string, at *mark) error {
	m.id, m.to = at.move, at.tag
	code, _, there, err := m.step(ctx, m.keys(m.to), stepRefuse, from)
	if err == nil && code == moveOtherwise && there.move != m.id {
		if err = m.evict(ctx, from, &there); errors.Is(err, errOvertaken) {
			code, _, there, err = m.step(ctx, m.keys(m.to), stepRefuse, from)
		}
	}
	switch {
	case err != nil:
		return err
	case code == moveHoldsJobs: // others than the move's, which finds them too
		return m.must(ctx, from, stepThaw, m.to)
	case code != moveDone && there.move != m.id:
		return fmt.Errorf("%w: the mark at the tag %q says %q", errOvertaken, m.to, there.state)
	case code != moveDone:
		return fmt.Errorf("its copy is complete (%s), and the move is not given up any more: run dispatcher bucket move %s again", there.state, m.name)
	}
	if err := m.drop(ctx, m.to, stateRefused); err != nil {
		return err
	}
	if err := m.must(ctx, from, stepThaw, m.to); err != nil {
		return err
	}
	return m.must(ctx, m.to, stepDone, from)
}
