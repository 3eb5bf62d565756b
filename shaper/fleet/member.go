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

// About is what a process says of itself.
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

	// By how many seconds the clock of Redis is ahead of that of its host, below 0 if it is behind. Absent: the clocks agree.
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
	Redis   redis.UniversalClient // made by redisconn.Connect
	Timeout time.Duration         // of one call; 0 means two seconds
	Logger  *slog.Logger          // nil logs nothing

	// Registerer is where the actors of the process count. nil: it tells no counts.
	Registerer prometheus.Registerer

	// About is asked before each beat, and what it does not say of the host and of lateness is added; Buckets are those of the process then.
	About   func() About
	Buckets func() []string
}

// Member tells what its process does.
type Member struct {
	cfg    Config
	id     string
	counts *metrics.Metrics
	born   time.Time
	offset time.Duration // of the clock of Redis
	number int64         // of the last beat
	period int64         // of the history
	told   map[string]*counted
	late   [Slots]metrics.Lateness // in the last beats, the newest first
	looked []string                // at by somebody
	bins   map[string]*binned

	refusedTold map[string]string // of limits: see refused
	unsent      [][]any           // what was counted and not taken in yet, in parts of one script each: nothing more is counted before
}

// counted is what was told of a bucket.
type counted struct {
	metrics.Totals

	again bool         // it is told again, moved or not: Redis may have lost it
	slot  int64        // the newest
	slots [Slots]int64 // departures in each, the newest first
	lates [Slots]metrics.Late
	progress
}

// NewMember returns a member, which tells nothing yet.
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
	return &Member{cfg: cfg, id: uuid.NewString(), counts: counts, born: time.Now(), told: map[string]*counted{}, bins: map[string]*binned{}, refusedTold: map[string]string{}}, nil
}

// Run tells what the process does until ctx ends, and then that it leaves. It costs one command in five seconds, and one a second while
// somebody looks; with more than 250 buckets that count something, one for each 250. While Redis is away it goes on counting.
func (m *Member) Run(ctx context.Context) {
	stopped := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { stopped <- time.Now() })
	// The first answer says what time it is; then its buckets are told.
	m.tell(ctx, time.Now(), false)
	m.count(m.redis(time.Now()))
	m.tell(ctx, time.Now(), false)
	for {
		step := Beat
		if len(m.looked) > 0 {
			step = Watched
		}
		now := m.redis(time.Now())
		next := now.Truncate(step).Add(step)
		goesOn := m.wait(ctx, next.Sub(now))
		at := time.Now()
		m.count(m.redis(at))
		if !goesOn || !m.wait(ctx, rand.N(step/10)) { //nolint:gosec // jitter: all processes count at once, and tell it one after another
			last, cancel := context.WithDeadline(context.WithoutCancel(ctx), (<-stopped).Add(lastTell))
			defer cancel()
			if last.Err() == nil {
				m.tell(last, at, true)
			}
			return
		}
		m.tell(ctx, at, false)
	}
}

// lastTell bounds the last beat, from the end of ctx on: a Redis that is silent must not delay the stop of the process by another call beyond the one
// that is under way.
const lastTell = time.Second

// redis is an instant by the clock of Redis.
func (m *Member) redis(at time.Time) time.Time { return at.Add(m.offset) }

// beginsBeat reports whether a time, by the clock of Redis, is in the first second of a Beat.
func beginsBeat(now time.Time) bool { return now.Truncate(Beat).Equal(now.Truncate(Watched)) }

// slotAt is the slot in which what was counted until now belongs.
func slotAt(now time.Time) int64 {
	slot := now.UnixMicro() / Beat.Microseconds()
	if beginsBeat(now) {
		slot-- // the one that has just ended
	}
	return slot
}

// count notes what was counted until now, by the clock of Redis, for the next beat. While what was counted before waits for Redis it notes
// nothing: the next time has it all.
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
		before, is := m.told[name], totals[name]
		if before != nil && before.Totals == is && !before.again {
			continue
		}
		if before == nil || before.isAbove(is) { // new, or counted anew since it left the configuration and came back
			before = &counted{slot: slot}
			m.told[name] = before
		}
		args = append(args, name, before.text(is, now), placeOf(name), is.Arrived-before.Arrived, is.Refused-before.Refused, is.Departed-before.Departed, is.Failed-before.Failed)
		before.Totals, before.again = is, false
		if len(args) >= beatArgs*beatBuckets {
			flush()
		}
	}
	for name := range m.told {
		if !buckets[name] {
			delete(m.told, name)
			args = append(args, name, "", "", 0, 0, 0, 0)
		}
	}
	tell := func(name, text string) {
		if args = append(args, name, text, "", 0, 0, 0, 0); len(args) >= beatArgs*beatBuckets {
			flush()
		}
	}
	for name, b := range m.bins {
		tell(binsOf(name), b.text())
	}
	if beginsBeat(now) {
		m.refused(tell)
	}
	flush()
}

const (
	beatArgs    = 7   // of a bucket
	beatBuckets = 250 // in one script
	parts       = 64  // of the history
)

// placeOf is where in a period of the history a bucket stands: "part short".
func placeOf(bucket string) string {
	part, short := inHistory(bucket)
	return part + " " + short
}

// inHistory is the part of a bucket, and its short name there: a name may have 63 bytes, 288 times a day.
func inHistory(bucket string) (part, short string) {
	sum := sha256.Sum256([]byte(bucket))
	const bytes = 8
	return strconv.Itoa(int(sum[bytes]) % parts), base64.RawURLEncoding.EncodeToString(sum[:bytes])
}

// isAbove reports whether a counter was higher before.
func (c *counted) isAbove(is metrics.Totals) bool {
	return c.Arrived > is.Arrived || c.Refused > is.Refused || c.Departed > is.Departed || c.Failed > is.Failed || isLess(is.Late, c.Late) || c.Succeeded > is.Succeeded || c.Attempts > is.Attempts
}

// text is that of the counters of a bucket, when they are these. c has what they were before.
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

// tell sends what was counted. An answer says what time it is, and what somebody looks at. What has no answer is sent again under the same
// number.
func (m *Member) tell(ctx context.Context, at time.Time, leaves bool) {
	says := m.says(at, leaves)
	var err error
	if len(m.unsent) == 0 {
		err = m.send(ctx, says, nil)
		m.number++ // nothing is lost with its answer
	}
	for err == nil && len(m.unsent) > 0 {
		if err = m.send(ctx, says, m.unsent[0]); err == nil {
			m.number++
			m.unsent = m.unsent[1:]
		}
	}
	if err != nil {
		m.cfg.Logger.DebugContext(ctx, "this process could not tell the fleet that it lives: it tries again", "error", err)
	}
}

// said is what a process says of itself, as Redis has it.
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
	if beginsBeat(m.redis(at)) {
		copy(m.late[1:], m.late[:])
		m.late[0] = now
	}
	text, err := json.Marshal(about)
	if err != nil {
		return "{}" // texts and numbers always marshal
	}
	return string(text)
}

// send makes one beat. It asks again where the period of the history is another one.
func (m *Member) send(ctx context.Context, says string, counted []any) error {
	for range 3 {
		ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
		sent := time.Now()
		keys := []string{beatsKey, processesKey, watchedKey, countsKey + m.id, historyKey + strconv.FormatInt(m.period, 10)}
		args := append([]any{m.id, m.number + 1, time.Since(m.born).Microseconds(), says, m.period}, counted...)
		reply, err := lua.Beat.Run(ctx, m.cfg.Redis, nil, keys, args...)
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
			if isUnknown && m.number > 0 { // Redis came back empty
				m.tellAgain()
			}
			return nil
		}
		m.period = period
	}
	return errors.New("the clock of Redis is in another period each time")
}

// tellAgain has the next beat tell of all buckets.
func (m *Member) tellAgain() {
	for _, c := range m.told {
		c.again = true
	}
	clear(m.refusedTold)
}

// wait waits, and counts bins meanwhile of what somebody looks at. It reports whether ctx goes on.
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

// watch counts bins of the buckets that somebody looks at, and no others.
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
