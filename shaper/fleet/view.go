package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// View reads the heartbeats of the fleet's processes. It is safe for concurrent use.
type View struct {
	redis   redis.UniversalClient
	timeout time.Duration
}

// NewView returns a view, without a round trip. timeout bounds one call; 0 means two seconds.
func NewView(client redis.UniversalClient, timeout time.Duration) *View {
	const usual = 2 * time.Second
	return &View{client, cmp.Or(timeout, usual)}
}

// Process is one process of the fleet.
type Process struct {
	ID string `json:"id"`
	About

	// How many it has.
	Buckets int `json:"buckets"`

	// By the clock of Redis: when it started, and when it last reported.
	Since         time.Time `json:"since"`
	LastHeartbeat time.Time `json:"last_heartbeat"`

	left   bool // it has stopped
	silent bool // no heartbeat for longer than Silence
	counts map[string]reported
}

// reported holds the counters that a process reported for a bucket.
type reported struct {
	Counts

	slot  int64
	slots []int64 // departures, the newest first; then late permits, see lateText

	progress progress
}

// Snapshot holds the latest report of every process.
type Snapshot struct {
	Now       time.Time // by the clock of Redis
	Processes []Process // sorted by name, then the oldest first

	left []Process                   // processes that have stopped recently
	gone []Process                   // processes that have been silent for longer than Silence, stopped or not
	bins map[string]map[int64]Counts // by watched bucket and number of the bin

	refused map[string]map[string]int64 // by limit and caller
}

// Look reads the reports of all processes, in two round trips. When Redis is down it returns an error after at most the timeout.
func (v *View) Look(ctx context.Context) (*Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	pipe := v.redis.Pipeline()
	heartbeats, abouts, clock := pipe.ZRangeWithScores(ctx, heartbeatsKey, 0, -1), pipe.HGetAll(ctx, processesKey), pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("look at the fleet: %w", err)
	}
	s := &Snapshot{Now: clock.Val(), bins: map[string]map[int64]Counts{}, refused: map[string]map[string]int64{}}
	pipe = v.redis.Pipeline()
	var counts []*redis.MapStringStringCmd
	for _, z := range heartbeats.Val() {
		last := time.UnixMicro(int64(z.Score))
		age := s.Now.Sub(last)
		if age > Forgotten || age < -Silence {
			continue
		}
		p := Process{ID: fmt.Sprint(z.Member), LastHeartbeat: last.UTC()}
		since, says, _ := strings.Cut(abouts.Val()[p.ID], " ")
		started, err := strconv.ParseInt(since, 10, 64)
		var it said
		if err != nil || json.Unmarshal([]byte(says), &it) != nil {
			continue // of a version with another format
		}
		p.About, p.left, p.silent, p.Since = it.About, it.Left, age > Silence, time.UnixMicro(started).UTC()
		s.Processes = append(s.Processes, p)
		counts = append(counts, pipe.HGetAll(ctx, countsKey+p.ID))
	}
	if len(counts) > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, fmt.Errorf("look at the fleet: %w", err)
		}
	}
	for i := range s.Processes {
		s.read(&s.Processes[i], counts[i].Val())
	}
	s.Processes = slices.DeleteFunc(s.Processes, func(p Process) bool {
		switch {
		case p.silent:
			s.gone = append(s.gone, p)
		case p.left:
			s.left = append(s.left, p)
		}
		return p.silent || p.left
	})
	slices.SortFunc(s.Processes, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Since.Compare(b.Since)) })
	return s, nil
}

// read parses the counters of a process.
func (s *Snapshot) read(p *Process, texts map[string]string) {
	p.counts = make(map[string]reported, len(texts))
	for name, text := range texts {
		at, text, _ := strings.Cut(text, " ") // when it was sent
		if bucket, ok := strings.CutPrefix(name, binsOf("")); ok {
			s.addBins(bucket, text)
			continue
		}
		if limit, ok := strings.CutPrefix(name, refusedOf("")); ok {
			s.addRefused(limit, at, text)
			continue
		}
		text, outcomes, _ := strings.Cut(text, progressMark)
		var n []int64
		for word := range strings.FieldsSeq(text) {
			one, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				break
			}
			n = append(n, one)
		}
		const numbers = 5
		if len(n) >= numbers {
			p.counts[name] = reported{Counts: Counts{n[0], n[1], n[2], n[3]}, slot: n[4], slots: n[numbers:], progress: parseProgress(outcomes)}
		}
	}
	p.Buckets = len(p.counts)
}

func (s *Snapshot) addBins(bucket, text string) {
	newest, bins, err := parseBins(text)
	if err != nil {
		return
	}
	if s.bins[bucket] == nil {
		s.bins[bucket] = map[int64]Counts{}
	}
	for i, c := range bins {
		sum := s.bins[bucket][newest-int64(i)]
		sum.add(c)
		s.bins[bucket][newest-int64(i)] = sum
	}
}

// Rename counts what processes report of a bucket under another name of it under this one: while the bucket is renamed, not all have the same
// name. What a process reports under both names stays apart.
func (s *Snapshot) Rename(other, name string) {
	for _, some := range [][]Process{s.Processes, s.left, s.gone} {
		for i := range some {
			counts := some[i].counts
			reported, is := counts[other]
			if _, both := counts[name]; is && !both {
				counts[name] = reported
				delete(counts, other)
			}
		}
	}
}

// Buckets returns the buckets that a process reports, in alphabetical order.
func (s *Snapshot) Buckets() []string {
	names := map[string]bool{}
	for i := range s.Processes {
		for name := range s.Processes[i].counts {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Busy returns how many jobs the running processes deliver.
func (s *Snapshot) Busy() (jobs int64) {
	for i := range s.Processes {
		jobs += int64(s.Processes[i].Busy)
	}
	return jobs
}

// IsServed reports whether a process delivers jobs of the bucket.
func (s *Snapshot) IsServed(bucket string) bool { return s.Dispatchers(bucket) > 0 }

// Dispatchers returns how many processes deliver jobs of the bucket.
func (s *Snapshot) Dispatchers(bucket string) int {
	n := 0
	for i := range s.Processes {
		if _, has := s.Processes[i].counts[bucket]; has && s.Processes[i].Works {
			n++
		}
	}
	return n
}

// ServedSince returns when the oldest process that delivers jobs of the bucket started (clock of Redis), or zero if there is none.
func (s *Snapshot) ServedSince(bucket string) (at time.Time) {
	for i := range s.Processes {
		p := &s.Processes[i]
		if _, has := p.counts[bucket]; has && p.Works && (at.IsZero() || p.Since.Before(at)) {
			at = p.Since
		}
	}
	return at
}

// HostFault returns why dispatchers of a bucket cannot connect to its receivers, "" if all can. isAll reports whether none can.
func (s *Snapshot) HostFault(bucket string) (text string, isAll bool) {
	sick := 0
	for i := range s.Processes {
		p := &s.Processes[i]
		if fault := p.HostFaults[bucket]; p.Works && fault != "" {
			sick++
			text = fmt.Sprintf("dispatcher on %s: %s", cmp.Or(p.Host, "a host without a name"), fault)
		}
	}
	return text, sick > 0 && sick == s.Dispatchers(bucket)
}

// Minute returns the departures of a bucket in the last minute, one number per [HeartbeatInterval], the oldest first. The last one may be incomplete.
func (s *Snapshot) Minute(bucket string) [Slots]int64 {
	newest := s.lastSlot()
	var minute [Slots]int64
	for i := range s.Processes {
		c, ok := s.Processes[i].counts[bucket]
		if !ok {
			continue
		}
		for age, n := range c.slots {
			if at := Slots - 1 - int(newest-c.slot) - age; at >= 0 && at < Slots {
				minute[at] += n
			}
		}
	}
	return minute
}

// Rate returns the departures per second of a bucket, over the last ten seconds that all processes have reported.
func (s *Snapshot) Rate(bucket string) float64 {
	minute := s.Minute(bucket)
	const slots = 2
	sum := int64(0)
	for _, n := range minute[Slots-slots:] {
		sum += n
	}
	return float64(sum) / (slots * HeartbeatInterval.Seconds())
}
