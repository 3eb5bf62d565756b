package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// About is how a process describes itself.
type About struct {
	Name     string `json:"name" jsonschema:"example=dispatcher"` // of its program
	Host     string `json:"host"`
	Version  string `json:"version,omitempty"`
	Revision int64  `json:"revision"` // of its configuration

	// It delivers jobs of its buckets.
	Works bool `json:"works"`

	// How many jobs it delivers right now.
	Busy int `json:"busy"`

	// How late 99 of 100 of its departures were at most in the last minute, in seconds. 0: nothing departed.
	P99Lateness float64 `json:"p99_lateness_seconds"`

	// By bucket: why its host cannot connect to receivers, so that it claims less. At most 20 buckets.
	HostFaults map[string]string `json:"host_faults,omitempty"`

	// By how many seconds the clock of Redis is ahead of the clock of the process's host, below 0 if it is behind. Absent: the clocks agree.
	ClockSkew float64 `json:"clock_skew_seconds,omitempty"`

	// The last loss of data of Redis that it found, for a day.
	DataLost *DataLoss `json:"data_lost,omitempty"`

	// Why its changed configuration was refused, so that it keeps to the previous one: the first fault. Absent: it was not.
	ReloadRefused string `json:"reload_refused,omitempty"`
}

// MaxHostFaults is how many buckets [About.HostFaults] names at most.
const MaxHostFaults = 20

// Config is what a [Member] needs.
type Config struct {
	Redis   redis.UniversalClient // returned by redisconn.Connect
	Timeout time.Duration         // of one call; 0 means two seconds
	Logger  *slog.Logger          // nil logs nothing

	// Registerer is where the actors of the process count. With nil, the member sends no counts.
	Registerer prometheus.Registerer

	// About is called before each heartbeat; the member adds the host and the lateness. Buckets returns the current buckets of the process.
	About   func() About
	Buckets func() []string
}

// Member sends the heartbeats of its process.
type Member struct {
	cfg      Config
	id       string
	counts   *metrics.Metrics
	born     time.Time
	offset   time.Duration // of the clock of Redis from ours
	number   int64         // of the last heartbeat
	period   int64         // of the history
	reported map[string]*counted
	late     [Slots]metrics.Lateness // in the last heartbeats, the newest first
	looked   []string                // buckets that are being watched
	bins     map[string]*binned

	refusedReported map[string]string // what was sent by refused, by limit
	unsent          [][]any           // what was counted and Redis has not confirmed yet, one script call each; until it is empty, count does nothing
}

// counted holds what was last reported of a bucket.
type counted struct {
	metrics.Totals

	again bool         // report it again even if unchanged: Redis may have lost it
	slot  int64        // the newest
	slots [Slots]int64 // departures in each, the newest first
	lates [Slots]metrics.Late
	progress
}

// NewMember returns a member. It sends nothing before Run.
func NewMember(cfg Config) (*Member, error) {
	counts, err := metrics.New(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	const timeout = 2 * time.Second
	if cfg.Timeout <= 0 {
		cfg.Timeout = timeout
	}
	return &Member{cfg: cfg, id: uuid.NewString(), counts: counts, born: time.Now(), reported: map[string]*counted{}, bins: map[string]*binned{}, refusedReported: map[string]string{}}, nil
}

// Run sends heartbeats until ctx ends, and then a last one that says the process has stopped. It costs one command every five seconds, and one a
// second while somebody is watching. With more than 250 active buckets it sends one command per 250. While Redis is down, counting continues.
func (m *Member) Run(ctx context.Context) {
	stopped := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { stopped <- time.Now() })
	// the first reply carries the time of Redis and the watched buckets; the second heartbeat sends the counts
	m.sendCounts(ctx, time.Now(), false)
	m.count(m.redis(time.Now()))
	m.sendCounts(ctx, time.Now(), false)
	for {
		step := HeartbeatInterval
		if len(m.looked) > 0 {
			step = Watched
		}
		now := m.redis(time.Now())
		next := now.Truncate(step).Add(step)
		goesOn := m.wait(ctx, next.Sub(now))
		at := time.Now()
		m.count(m.redis(at))
		if !goesOn || !m.wait(ctx, rand.N(step/10)) { //nolint:gosec // jitter: all processes count at once, and send the counts one after another
			last, cancel := context.WithDeadline(context.WithoutCancel(ctx), (<-stopped).Add(lastSend))
			defer cancel()
			if last.Err() == nil {
				m.sendCounts(last, at, true)
			}
			return
		}
		m.sendCounts(ctx, at, false)
	}
}

// lastSend bounds the last heartbeat, counted from the end of ctx. So an unresponsive Redis delays the stop by at most the call under way and this
// time.
const lastSend = time.Second

// redis converts an instant to the clock of Redis.
func (m *Member) redis(at time.Time) time.Time { return at.Add(m.offset) }

// beginsInterval reports whether a time, by the clock of Redis, is in the first second of a [HeartbeatInterval].
func beginsInterval(now time.Time) bool {
	return now.Truncate(HeartbeatInterval).Equal(now.Truncate(Watched))
}

// slotAt returns the slot to which counts up to now belong.
func slotAt(now time.Time) int64 {
	slot := now.UnixMicro() / HeartbeatInterval.Microseconds()
	if beginsInterval(now) {
		slot-- // the one that has just ended
	}
	return slot
}

// count prepares the counts up to now (clock of Redis) for the next heartbeat. While earlier counts still wait for Redis, it does nothing: the next
// call includes everything.
func (m *Member) count(now time.Time) {
	if len(m.unsent) > 0 {
		return
	}
	totals, slot := m.counts.Totals(), slotAt(now)
	buckets := map[string]bool{}
	for _, name := range m.cfg.Buckets() {
		buckets[name] = true
	}
	var args []any
	flush := func() {
		if len(args) > 0 {
			m.unsent = append(m.unsent, args)
		}
		args = nil
	}
	for name := range totals {
		buckets[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(buckets)) {
		before, is := m.reported[name], totals[name]
		if before != nil && before.Totals == is && !before.again {
			continue
		}
		if before == nil || before.isAbove(is) { // new, or its counters restarted after it was removed from the configuration and added again
			before = &counted{slot: slot}
			m.reported[name] = before
		}
		args = append(args, name, before.text(is, now), placeOf(name), is.Arrived-before.Arrived, is.Refused-before.Refused, is.Departed-before.Departed, is.Failed-before.Failed)
		before.Totals, before.again = is, false
		if len(args) >= heartbeatArgs*heartbeatBuckets {
			flush()
		}
	}
	for name := range m.reported {
		if !buckets[name] {
			delete(m.reported, name)
			args = append(args, name, "", "", 0, 0, 0, 0)
		}
	}
	add := func(name, text string) {
		if args = append(args, name, text, "", 0, 0, 0, 0); len(args) >= heartbeatArgs*heartbeatBuckets {
			flush()
		}
	}
	for name, b := range m.bins {
		add(binsOf(name), b.text())
	}
	if beginsInterval(now) {
		m.refused(add)
	}
	flush()
}

const (
	heartbeatArgs    = 7   // per bucket
	heartbeatBuckets = 250 // in one script
	parts            = 64  // of the history
)

// placeOf returns the position of a bucket in a period of the history: "part short".
func placeOf(bucket string) string {
	part, short := inHistory(bucket)
	return part + " " + short
}

// inHistory returns the part of a bucket and its short name there. Full names take up to 63 bytes, 288 times a day.
func inHistory(bucket string) (part, short string) {
	sum := sha256.Sum256([]byte(bucket))
	const bytes = 8
	return strconv.Itoa(int(sum[bytes]) % parts), base64.RawURLEncoding.EncodeToString(sum[:bytes])
}

// isAbove reports whether any counter was higher before.
func (c *counted) isAbove(is metrics.Totals) bool {
	return c.Arrived > is.Arrived || c.Refused > is.Refused || c.Departed > is.Departed || c.Failed > is.Failed || isLess(is.Late, c.Late) || c.Succeeded > is.Succeeded || c.Attempts > is.Attempts
}

// text returns the counters of a bucket as Redis keeps them. is are the new counters; c still holds the previous ones, and text updates its slots.
func (c *counted) text(is metrics.Totals, now time.Time) string {
	slot := slotAt(now)
	for ; c.slot < slot; c.slot++ {
		copy(c.slots[1:], c.slots[:])
		copy(c.lates[1:], c.lates[:])
		c.slots[0], c.lates[0] = 0, metrics.Late{}
		c.shift()
		if slot-c.slot > Slots {
			c.slots, c.lates, c.progress.slots, c.slot = [Slots]int64{}, [Slots]metrics.Late{}, [Slots]outcomes{}, slot-1
		}
	}
	c.slots[0] += is.Departed - c.Departed
	for i := range is.Late {
		c.lates[0][i] += is.Late[i] - c.Late[i]
	}
	c.add(&is, &c.Totals, now)
	text := fmt.Appendf(nil, "%d %d %d %d %d", is.Arrived, is.Refused, is.Departed, is.Failed, c.slot)
	for _, n := range c.slots {
		text = append(text, ' ')
		text = strconv.AppendInt(text, n, 10)
	}
	return string(text) + lateText(c.lates) + c.progress.text()
}

// sendCounts sends the prepared counts. The reply carries the time of Redis and the watched buckets. A call without a reply is repeated under the same
// number.
func (m *Member) sendCounts(ctx context.Context, at time.Time, leaves bool) {
	says := m.says(at, leaves)
	var err error
	if len(m.unsent) == 0 {
		err = m.send(ctx, says, nil)
		m.number++ // no counts are lost if the reply is
	}
	for err == nil && len(m.unsent) > 0 {
		if err = m.send(ctx, says, m.unsent[0]); err == nil {
			m.number++
			m.unsent = m.unsent[1:]
		}
	}
	if err != nil {
		m.cfg.Logger.DebugContext(ctx, "the heartbeat of this process failed: it tries again", "error", err)
	}
}

// said is About as Redis keeps it.
type said struct {
	About

	Left bool `json:"left,omitempty"` // it has stopped
}

func (m *Member) says(at time.Time, leaves bool) string {
	about := said{m.cfg.About(), leaves}
	if about.Host == "" {
		about.Host, _ = os.Hostname()
	}
	now := m.counts.Lateness()
	about.P99Lateness = now.P99(m.late[Slots-1])
	if beginsInterval(m.redis(at)) {
		copy(m.late[1:], m.late[:])
		m.late[0] = now
	}
	text, err := json.Marshal(about)
	if err != nil {
		return "{}" // texts and numbers always marshal
	}
	return string(text)
}

// send makes one heartbeat. If the reply names another period of the history, it sends again for that period.
func (m *Member) send(ctx context.Context, says string, counted []any) error {
	for range 3 {
		ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
		sent := time.Now()
		keys := []string{heartbeatsKey, processesKey, watchedKey, countsKey + m.id, historyKey + strconv.FormatInt(m.period, 10)}
		args := append([]any{m.id, m.number + 1, time.Since(m.born).Microseconds(), says, m.period}, counted...)
		reply, err := lua.Heartbeat.Run(ctx, m.cfg.Redis, nil, keys, args...)
		cancel()
		if err != nil {
			return err
		}
		r := lua.NewReader(reply)
		now, period, isUnknown := r.Int(), r.Int(), r.Int() == 1
		m.looked = nil
		for r.Left() > 0 {
			m.looked = append(m.looked, r.Text())
		}
		if r.Err() != nil {
			return r.Err()
		}
		m.offset = time.UnixMicro(now).Sub(sent.Add(time.Since(sent) / 2))
		m.watch()
		if period == m.period {
			if isUnknown && m.number > 0 { // Redis has lost its data
				m.tellAgain()
			}
			return nil
		}
		m.period = period
	}
	return errors.New("the clock of Redis is in another period each time")
}

// tellAgain makes the next heartbeat report all buckets.
func (m *Member) tellAgain() {
	for _, c := range m.reported {
		c.again = true
	}
	clear(m.refusedReported)
}

// wait waits for d, and meanwhile counts the bins of watched buckets. It reports whether ctx is still alive.
func (m *Member) wait(ctx context.Context, d time.Duration) bool {
	until := time.Now().Add(d)
	for {
		left := time.Until(until)
		if left <= 0 {
			return ctx.Err() == nil
		}
		if len(m.bins) > 0 {
			now := m.redis(time.Now())
			left = min(left, now.Truncate(Bin).Add(Bin).Sub(now))
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
		for name, b := range m.bins {
			b.count(m.redis(time.Now()), m.counts.TotalsOf(name))
		}
	}
}

// watch starts counting bins for newly watched buckets, and stops for all others.
func (m *Member) watch() {
	for name := range m.bins {
		if !slices.Contains(m.looked, name) {
			delete(m.bins, name)
		}
	}
	for _, name := range m.looked {
		if m.bins[name] == nil && name != everything {
			m.bins[name] = &binned{totals: m.counts.TotalsOf(name), at: m.redis(time.Now()).UnixMicro() / Bin.Microseconds()}
		}
	}
}
