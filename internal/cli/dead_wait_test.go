package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper/operator"
)

// scripted answers one part after the other, and notes when and with which cursor it was asked.
type scripted struct {
	parts   []operator.DeadChange
	takes   time.Duration // each of them
	began   time.Time
	asked   []time.Duration
	cursors []string
}

func (s *scripted) change(_ context.Context, _ operator.DeadFilter, cursor string, _ bool) (operator.DeadChange, error) {
	s.asked, s.cursors = append(s.asked, time.Since(s.began)), append(s.cursors, cursor)
	<-time.After(s.takes) // in the time of a bubble
	part := s.parts[0]
	if len(s.parts) > 1 {
		s.parts = s.parts[1:]
	}
	return part, nil
}

func moved(n, full, flowFull, disabled int) operator.Redriven {
	return operator.Redriven{Moved: n, Full: full, FlowFull: flowFull, Disabled: disabled}
}

// A change goes on from each cursor. Where nothing can be moved for now it waits, and what was left dead for
// want of a place is counted no more.
func TestDeadChangeWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{began: time.Now(), parts: []operator.DeadChange{
			{Redriven: moved(7, 0, 0, 0), Next: "a"},
			{Redriven: moved(3, 5, 0, 0), Next: "b", Waiting: true},
			{Redriven: moved(0, 8, 0, 0), Next: "b", Waiting: true},
			{Redriven: moved(0, 8, 0, 0), Next: "b", Waiting: true},
			{Redriven: moved(4, 0, 6, 2), Next: "c", Waiting: true},
			{Redriven: moved(6, 0, 0, 1)},
		}}
		var said bytes.Buffer
		sum, err := (&invocation{err: &said}).deadChange(t.Context(), operator.DeadFilter{}, false, true, s.change)
		if err != nil || sum.Redriven != moved(20, 0, 0, 2) {
			t.Errorf("%+v, %v", sum, err)
		}
		must.Equal(t, strings.Join(s.cursors, " "), " a b b b c", "cursors")
		var seconds []float64
		for _, at := range s.asked {
			seconds = append(seconds, at.Seconds())
		}
		if want := []float64{0, 0, .1, .3, .7, .9}; !slices.Equal(seconds, want) {
			t.Errorf("asked at %v, want %v", seconds, want)
		}
		if said.Len() > 0 {
			t.Errorf("said %q within a minute", said.String())
		}
		slow := &scripted{began: time.Now(), takes: time.Second, parts: []operator.DeadChange{
			{Next: "a"}, {Redriven: moved(3, 0, 5, 0), Next: "b", Waiting: true}, {},
		}}
		if _, err := (&invocation{err: &said}).deadChange(t.Context(), operator.DeadFilter{}, false, true, slow.change); err != nil || slow.asked[2] != 4*time.Second {
			t.Errorf("a round of 2 s is followed by another at %v, %v", slow.asked, err)
		}
	})
}

// Without wait it ends where nothing more can be moved for now. With it, it ends with the context, and says each minute how far it is.
func TestDeadChangeEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := operator.DeadChange{Redriven: moved(0, 8, 0, 0), Next: "b", Waiting: true}
		once := &scripted{parts: []operator.DeadChange{full}}
		var said bytes.Buffer
		a := &invocation{err: &said}
		if sum, err := a.deadChange(t.Context(), operator.DeadFilter{}, false, false, once.change); err != nil || sum.Full != 8 || len(once.asked) != 1 {
			t.Errorf("without wait: %+v, %v, asked %d times", sum, err, len(once.asked))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		if _, err := a.deadChange(ctx, operator.DeadFilter{}, false, true, (&scripted{parts: []operator.DeadChange{full}}).change); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
		if want := strings.Repeat("0 dead letters looked at, 0 redriven, 0 dropped; waiting for places\n", 2); said.String() != want {
			t.Errorf("said %q", said.String())
		}
	})
}

// What stays dead is said in the singular and in the plural.
func TestWhatStaysDead(t *testing.T) {
	t.Parallel()
	for want, redriven := range map[string]operator.Redriven{
		`1 job stays dead: full flows, or too many of them in bucket "b"`: moved(0, 0, 1, 0),
		`2 jobs stay dead: full flows`:                                    moved(0, 0, 2, 0),
		`1 job stays dead, of disabled flows`:                             moved(0, 0, 0, 1),
		`3 jobs stay dead, of disabled flows; see them with`:              moved(0, 0, 0, 3),
	} {
		if err := (&invocation{out: io.Discard}).printRedriven("b", redriven, nil, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("said %v, want %q", err, want)
		}
	}
}
