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

// Second is what was counted in a second.
type Second struct {
	// When it ended, by the clock of Redis.
	At time.Time `json:"at"`

	// How many processes there are.
	Processes int `json:"processes"`

	// Those of which the counts are in it: fewer in the first seconds, until all processes know that somebody looks.
	Telling int `json:"telling"`

	// Processes that tell nothing any more, by their names: what they counted since they told it last is missing.
	Lost []string `json:"lost,omitempty"`

	// Those of which something was counted.
	Buckets map[string]Counts `json:"buckets"`

	// Of 100 ms each, of the bucket that is looked at, the oldest first.
	Bins []BinCounts `json:"bins,omitempty"`
}

// BinCounts are those of a bin.
type BinCounts struct {
	At int64 `json:"at"` // when it began, in milliseconds since 1970
	Counts
}

// Watcher tells many viewers what happens, each second. However many they are, it reads once for all. It reads nothing while there is none.
type Watcher struct {
	view *View
	log  func(error)

	mu      sync.Mutex
	viewers map[*viewer]struct{}
	stop    context.CancelFunc // of the goroutine that reads; nil: none runs
	runs    sync.WaitGroup
}

// viewer is one that is told.
type viewer struct {
	bucket string // whose bins it wants; "" of none
	tell   chan Second
}

// NewWatcher returns a watcher. failed, if not nil, is told of errors; the next second may work.
func NewWatcher(view *View, failed func(error)) *Watcher {
	if failed == nil {
		failed = func(error) {}
	}
	return &Watcher{view: view, log: failed, viewers: map[*viewer]struct{}{}}
}

// Watch tells what is counted each second, until the function that it returns is called. bucket is that of which bins are told, "" of none. A
// reader that is two seconds late is dropped: its channel is closed. The first second comes after up to six, as processes have to learn that
// somebody looks.
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
	return v.tell, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drop(v)
	}
}

// drop ends the telling of one viewer. The caller holds the lock.
func (w *Watcher) drop(v *viewer) {
	if _, there := w.viewers[v]; !there {
		return
	}
	delete(w.viewers, v)
	close(v.tell)
	if len(w.viewers) == 0 {
		w.stop()
		w.stop = nil
	}
}

// Close drops all viewers and waits until nothing is read any more.
func (w *Watcher) Close() {
	w.mu.Lock()
	for v := range w.viewers {
		w.drop(v)
	}
	w.mu.Unlock()
	w.runs.Wait()
}

// run reads each second, half a second after it: by then all processes have told it.
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
		snapshot, err := w.look(ctx, n)
		if err != nil {
			if ctx.Err() == nil {
				w.log(err)
			}
			continue
		}
		offset = time.Until(snapshot.Now)
		w.tellAll(ctx, before, snapshot)
	}
}

// look says for whom it looks, every few seconds, and looks.
func (w *Watcher) look(ctx context.Context, n int) (*Snapshot, error) {
	const sayEvery = 3 // seconds, of the ten for which it is known
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

// say says that somebody looks at buckets.
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

// tally is what was told of each process before.
type tally struct {
	since     time.Time // when it began
	processes map[string]*tallied
	bins      map[string]int64 // the last bin that was told, of each bucket
}

// tallied is what was told of a process.
type tallied struct {
	name   string // "" of one that has stopped: it is not lost when it is there no more
	counts map[string]Counts
	last   time.Time // its last beat
	isTold bool      // it tells each second
}

func newTally() *tally { return &tally{processes: map[string]*tallied{}, bins: map[string]int64{}} }

// tellAll tells each viewer what is new. One that does not read is dropped. Viewers that came after ctx ended are told by another goroutine.
func (w *Watcher) tellAll(ctx context.Context, before *tally, s *Snapshot) {
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
		case v.tell <- own:
		default:
			w.drop(v)
		}
	}
}

// second is what was counted since the snapshot before. Of a process that ran before the telling began, what it had counted until it knew that
// somebody looks is left out: it would be that of five seconds in one.
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
			known = &tallied{counts: map[string]Counts{}, last: p.LastBeat, isTold: p.Since.After(t.since)}
			t.processes[p.ID] = known
		}
		isTold := known.isTold
		if isTold && !p.left {
			second.Telling++
		}
		if step := p.LastBeat.Sub(known.last); step > 0 && step < Watched+Watched/2 {
			known.isTold = true // from the next beat on: this one may have begun before
		}
		for bucket, now := range p.counts {
			if more := now.since(known.counts[bucket]); isTold && more != (Counts{}) {
				sum := second.Buckets[bucket]
				sum.add(more)
				second.Buckets[bucket] = sum
			}
			known.counts[bucket] = now.Counts
		}
		known.last, known.name = p.LastBeat, fmt.Sprintf("%s on %s", p.Name, p.Host)
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

// newBins are those of a bucket that were not told yet. The newest ones, of which some process may not have told, wait for the next second.
// Where a second could not be read, the next one has its bins too.
func (t *tally) newBins(bucket string, s *Snapshot) []BinCounts {
	newest := s.Now.Truncate(Watched).UnixMicro()/Bin.Microseconds() - 1
	from := newest - int64(Watched/Bin) + 1
	if told := t.bins[bucket]; told > 0 {
		from = max(told, newest-2*int64(Watched/Bin)) + 1
	}
	list := []BinCounts{}
	for n := from; n <= newest; n++ {
		list = append(list, BinCounts{n * Bin.Milliseconds(), s.bins[bucket][n]})
	}
	t.bins[bucket] = newest
	return list
}
