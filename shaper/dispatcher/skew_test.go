package dispatcher

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

func TestSkew(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{6 * time.Minute, -6 * time.Minute, 4 * time.Second, 0} {
		c := newClock()
		if now := time.Now(); c.skew(now) != 0 || c.now().Sub(now).Abs() > time.Minute {
			t.Errorf("before the first call: skew %s, now %s", c.skew(now), c.now())
		}
		start := time.Now()
		c.observe(start, start.Add(10*time.Millisecond), start.Add(5*time.Millisecond+ahead).UnixMicro())
		if skew := c.skew(start); (skew - ahead).Abs() > 6*time.Millisecond {
			t.Errorf("ahead by %s: skew %s", ahead, skew)
		}
		if off := c.now().Sub(time.Now().Round(0)) - ahead; off.Abs() > time.Second {
			t.Errorf("ahead by %s: the time is off by %s", ahead, off)
		}
		a := &shaper.Attempt{}
		a.Clock(c.now)
		if off := a.Now().Sub(time.Now().Round(0)) - ahead; off.Abs() > time.Second {
			t.Errorf("ahead by %s: the time of an attempt is off by %s", ahead, off)
		}
	}
}

// Clocks that differ are logged once, and once more when they agree again.
func TestSkewIsLogged(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	l := &bucketLoop{bucketConn: &bucketConn{clock: newClock()}}
	d := &Dispatcher{store: &store.Store{Log: slog.New(slog.NewTextHandler(log, nil))}}
	d.loops.Store(&[]*bucketLoop{l})
	differ, agree := "the clocks of Redis and of this machine differ: deliveries are paced and signed by the clock of Redis; run NTP on both machines, "+
		"as receivers refuse signatures whose time is wrong", "the clocks of Redis and of this machine agree again"
	check := func(ahead time.Duration, differs, agrees int) {
		t.Helper()
		l.clock = newClock()
		now := time.Now()
		l.clock.observe(now, now, now.Add(ahead).UnixMicro())
		for range 3 {
			d.checkSkew(context.Background(), now)
		}
		if len(log.lines(differ)) != differs || len(log.lines(agree)) != agrees {
			t.Errorf("%s: differ %q, agree %q", ahead, log.lines(differ), log.lines(agree))
		}
	}
	check(4*time.Second, 0, 0)
	check(6*time.Minute, 1, 0)
	check(time.Second, 1, 1)
	check(-6*time.Second, 2, 1)
	check(0, 2, 2)
}
