package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Second holds the counts of one second.
type Second struct {
	// When it ended, by the clock of Redis.
	At time.Time `json:"at"`

	// How many processes there are.
	Processes int `json:"processes"`

	// How many of them have reported counts: fewer in the first seconds, until all processes know that somebody is watching.
	Reporting int `json:"reporting"`

	// Names of processes that no longer report: what they counted since their last report is missing.
	Lost []string `json:"lost,omitempty"`

	// The buckets with counts.
	Buckets map[string]Counts `json:"buckets"`

	// Of 100 ms each, of the bucket that is looked at, the oldest first.
	Bins []BinCounts `json:"bins,omitempty"`
}

// BinCounts holds the counts of one bin.
type BinCounts struct {
	At int64 `json:"at"` // when it began, in milliseconds since 1970
	Counts
}

// Watcher sends the counts of each second to its viewers. It reads Redis once a second for all viewers, and not at all while there is none.
type Watcher struct {
	view *View
	log  func(error)

	mu      sync.Mutex
	viewers map[*viewer]struct{}
	stop    context.CancelFunc // of the goroutine that reads; nil: none is running
	runs    sync.WaitGroup
}

// viewer is one subscriber.
type viewer struct {
	bucket  string // the bucket whose bins it wants; "" for none
	seconds chan Second
}

// NewWatcher returns a watcher. failed, if not nil, is called with each error; the next second may work.
func NewWatcher(view *View, failed func(error)) *Watcher {
	if failed == nil {
		failed = func(error) {}
	}
	return &Watcher{view: view, log: failed, viewers: map[*viewer]struct{}{}}
}

// Watch returns a channel with the counts of each second, and a function that ends it. bucket names the bucket whose bins are included, "" for none.
// A viewer that is two seconds behind is dropped: its channel is closed. The first second can take up to six seconds, until all processes know that
// somebody is watching.
func (w *Watcher) Watch(bucket string) (seconds <-chan Second, end func()) {
	const behind = 2
	v := &viewer{bucket, make(chan Second, behind)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.viewers[v] = struct{}{}
	if w.stop == nil {
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		w.runs.Go(func() { w.run(ctx) })
	}
	return v.seconds, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drop(v)
	}
}

// drop removes a viewer and closes its channel. The caller holds the lock.
func (w *Watcher) drop(v *viewer) {
	if _, there := w.viewers[v]; !there {
		return
	}
	delete(w.viewers, v)
	close(v.seconds)
	if len(w.viewers) == 0 {
		w.stop()
		w.stop = nil
	}
}

// Close drops all viewers and waits until the reading goroutine has ended.
func (w *Watcher) Close() {
	w.mu.Lock()
	for v := range w.viewers {
		w.drop(v)
	}
	w.mu.Unlock()
	w.runs.Wait()
}

// run reads each second half a second after it ended: by then all processes have sent their counts.
func (w *Watcher) run(ctx context.Context) {
	before := newTally()
	var offset time.Duration
	for n := 0; ; n++ {
		now := time.Now().Add(offset)
		next := now.Truncate(Watched).Add(Watched + Watched/2)
		select {
		case <-ctx.Done():
			return
		case <-time.After(next.Sub(now)):
		}
		snapshot, err := w.readSnapshot(ctx, n)
		if err != nil {
			if ctx.Err() == nil {
				w.log(err)
			}
			continue
		}
		offset = time.Until(snapshot.Now)
		w.sendSecond(ctx, before, snapshot)
	}
}

// readSnapshot returns a snapshot. Every few seconds it first renews the list of watched buckets.
func (w *Watcher) readSnapshot(ctx context.Context, n int) (*Snapshot, error) {
	const sayEvery = 3 // seconds; an entry lasts ten
	w.mu.Lock()
	looked := map[string]bool{everything: true}
	for v := range w.viewers {
		if v.bucket != "" {
			looked[v.bucket] = true
		}
	}
	w.mu.Unlock()
	if n%sayEvery == 0 {
		if err := w.view.say(ctx, slices.Sorted(maps.Keys(looked))); err != nil {
			return nil, err
		}
	}
	return w.view.Look(ctx)
}

// say marks buckets as watched in Redis.
func (v *View) say(ctx context.Context, buckets []string) error {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	now, err := v.redis.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("look at the fleet: %w", err)
	}
	pipe := v.redis.Pipeline()
	for _, bucket := range buckets {
		pipe.HSet(ctx, watchedKey, bucket, strconv.FormatInt(now.Add(lookedAt).UnixMicro(), 10))
	}
	pipe.PExpire(ctx, watchedKey, 2*lookedAt)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("look at the fleet: %w", err)
	}
	return nil
}

// tally holds what the previous snapshots reported.
type tally struct {
	since     time.Time // when watching began
	processes map[string]*tallied
	bins      map[string]int64 // the last bin that was sent, by bucket
}

// tallied holds what a process reported last.
type tallied struct {
	name        string // "" once the process has stopped: then it is not reported as lost
	counts      map[string]Counts
	last        time.Time // its last heartbeat
	isReporting bool      // it sends a heartbeat each second
}

func newTally() *tally { return &tally{processes: map[string]*tallied{}, bins: map[string]int64{}} }

// sendSecond sends each viewer the new counts, and drops a viewer that does not read. It sends nothing if ctx has ended: another goroutine serves later
// viewers.
func (w *Watcher) sendSecond(ctx context.Context, before *tally, s *Snapshot) {
	second := before.second(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	bins := map[string][]BinCounts{}
	for v := range w.viewers {
		if v.bucket == "" || bins[v.bucket] != nil {
			continue
		}
		bins[v.bucket] = before.newBins(v.bucket, s)
	}
	for v := range w.viewers {
		own := second
		own.Bins = bins[v.bucket]
		select {
		case v.seconds <- own:
		default:
			w.drop(v)
		}
	}
}

// second returns the counts since the previous snapshot. A process that started before the watching began is left out until it sends its counts each
// second. Otherwise its first difference would put five seconds of counts into one.
func (t *tally) second(s *Snapshot) Second {
	second := Second{At: s.Now.UTC().Truncate(Watched), Processes: len(s.Processes), Buckets: map[string]Counts{}}
	if t.since.IsZero() {
		t.since = s.Now
	}
	there := map[string]bool{}
	for _, p := range slices.Concat(s.Processes, s.left) {
		there[p.ID] = true
		known := t.processes[p.ID]
		if known == nil {
			known = &tallied{counts: map[string]Counts{}, last: p.LastHeartbeat, isReporting: p.Since.After(t.since)}
			t.processes[p.ID] = known
		}
		isReporting := known.isReporting
		if isReporting && !p.left {
			second.Reporting++
		}
		if step := p.LastHeartbeat.Sub(known.last); step > 0 && step < Watched+Watched/2 {
			known.isReporting = true // from the next heartbeat on: this one may cover more than a second
		}
		for bucket, now := range p.counts {
			if more := now.since(known.counts[bucket]); isReporting && more != (Counts{}) {
				sum := second.Buckets[bucket]
				sum.add(more)
				second.Buckets[bucket] = sum
			}
			known.counts[bucket] = now.Counts
		}
		known.last, known.name = p.LastHeartbeat, fmt.Sprintf("%s on %s", p.Name, p.Host)
		if p.left {
			known.name = ""
		}
	}
	for id, known := range t.processes {
		if !there[id] {
			if known.name != "" {
				second.Lost = append(second.Lost, known.name)
			}
			delete(t.processes, id)
		}
	}
	slices.Sort(second.Lost)
	return second
}

// newBins returns the bins of a bucket that were not sent yet. The newest bins wait for the next second, as some process may not have sent them yet.
// If a second could not be read, the next one includes its bins.
func (t *tally) newBins(bucket string, s *Snapshot) []BinCounts {
	newest := s.Now.Truncate(Watched).UnixMicro()/Bin.Microseconds() - 1
	from := newest - int64(Watched/Bin) + 1
	if sent := t.bins[bucket]; sent > 0 {
		from = max(sent, newest-2*int64(Watched/Bin)) + 1
	}
	list := []BinCounts{}
	for n := from; n <= newest; n++ {
		list = append(list, BinCounts{n * Bin.Milliseconds(), s.bins[bucket][n]})
	}
	t.bins[bucket] = newest
	return list
}
