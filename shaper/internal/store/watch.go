package store

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
)

// WatchEvery is the interval at which processes check the effective settings. Within it, a dispatcher replaces what another process has written,
// and a producer notices changes.
const WatchEvery = 10 * time.Second

// settingsWatch detects changes of the effective settings of a bucket or a pool. Operators and other processes make them in Redis. Without it,
// the log would not explain why the pace has changed.
type settingsWatch struct {
	*watchedKind
	log    *slog.Logger
	key    string            // of the effective settings
	last   map[string]string // nil until it was seen
	read   bool              // its record of changes was read
	newest int64             // time of the newest known change in the record
	lost   bool              // Redis had lost the settings, as the current check found
}

// watchedKind is what Watch reads of all buckets, or of all pools.
type watchedKind struct {
	name   string   // in the log
	fields []string // of the hash
}

var (
	watchedBucket = newWatchedKind("bucket", OfBuckets)
	watchedPool   = newWatchedKind("pool", OfPools)
)

func newWatchedKind(name string, all StoredSettings) *watchedKind {
	k := &watchedKind{name: name, fields: slices.Concat(markFields, pauseFields, originFields)}
	for _, s := range all.Changeable() {
		k.fields = append(append(k.fields, s.Fields...), "set:"+s.Fields[0])
	}
	return k
}

// watches holds the watches of a store's buckets and pools, by their keys.
type watches struct {
	mu sync.Mutex
	of map[string]*settingsWatch
}

// watched is a bucket that Watch checks.
type watched struct {
	b       *Bucket
	watches []*settingsWatch // the bucket's, and its pool's
	news    bool             // something has changed
}

// markFields name the writer of settings, and the units of budgets that operators gave to single flows and groups.
var markFields = []string{fieldOwned, fieldStarted, "revision", fieldPartBudgets}

// The fields of a bucket's pause; pools have none of these.
var pauseFields = []string{"paused", "paused_by", "paused_reason"}

// The fields that distinguish settings that were lost and written again from settings that were never lost; pools have none of these.
var originFields = []string{fieldCreated, fieldLeftFor}

// Watch reads the effective settings of all buckets, in a read-only process of the buckets that it has used. It takes one round trip (in a
// cluster one per node), and more if something has changed. It logs changes, records for operators where a configuration differs, and returns
// the buckets to be written again: an authoritative process writes its settings again if lesser ones replaced them. The next call retries what
// it could not read.
func (s *Store) Watch(ctx context.Context) (again []*Bucket) {
	return s.WatchSome(ctx, func(*Bucket) bool { return true })
}

// WatchSome is Watch for the buckets for which needsLook returns true. It calls needsLook once for each bucket.
func (s *Store) WatchSome(ctx context.Context, needsLook func(b *Bucket) bool) (again []*Bucket) {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	list := s.watchedBuckets()
	looked, rest := make([]*watched, 0, len(list)), []*watched(nil)
	for _, w := range list {
		if needsLook(w.b) {
			looked = append(looked, w)
		} else {
			rest = append(rest, w)
		}
	}
	if s.lookAt(ctx, looked) {
		s.lookAt(ctx, rest) // one log line for all that was lost together
		looked = list
		s.reportLost(ctx, list)
	}
	var news []*watched
	for _, w := range looked {
		w.b.planned.Store(w.watches[0].last[FieldPlan] != "")
		w.b.seeBudgets(w.watches)
		if s.isReplaced(w) {
			w.b.Configured.Store(false)
			again = append(again, w.b)
		} else if w.news {
			news = append(news, w)
		}
	}
	for some := range slices.Chunk(news, watchedAtOnce) {
		s.readNews(ctx, some)
	}
	s.noteDifferences(ctx, list)
	return again
}

// watchedAtOnce is how many buckets are read in two round trips: their settings have up to 30 KB.
const watchedAtOnce = 50

// watchedBuckets returns the buckets to check, with what was seen before. It forgets buckets that are no longer watched.
func (s *Store) watchedBuckets() []*watched {
	known := s.watches.of
	s.watches.of = make(map[string]*settingsWatch, len(known))
	add := func(w *watched, kind *watchedKind, name, key string) {
		watch := cmp.Or(s.watches.of[key], known[key])
		if watch == nil {
			watch = &settingsWatch{watchedKind: kind, log: s.Log.With(kind.name, name), key: key}
		}
		s.watches.of[key] = watch
		w.watches = append(w.watches, watch)
	}
	var list []*watched
	for _, b := range s.All() {
		if s.Role == ReadOnly && !b.Configured.Load() {
			continue
		}
		w := &watched{b: b}
		add(w, watchedBucket, b.Name, b.Keys.Conf())
		if pool := b.Keys.Pool; pool != "" {
			add(w, watchedPool, pool, PoolConf(pool))
		}
		list = append(list, w)
	}
	return list
}

// lookAt reads the settings of all, each once. It reports whether Redis has lost some of them.
func (s *Store) lookAt(ctx context.Context, list []*watched) (lost bool) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	var all []*settingsWatch
	at := map[*settingsWatch]int{} // in all: buckets of a pool share one
	for _, w := range list {
		for _, watch := range w.watches {
			if _, ok := at[watch]; !ok {
				at[watch] = len(all)
				all = append(all, watch)
			}
		}
	}
	found := make([]*redis.SliceCmd, len(all))
	lua.Spread(ctx, s.Redis, len(all), func(i int) string { return all[i].key }, func(some []int) {
		pipe := s.Redis.Pipeline()
		for _, i := range some {
			found[i] = pipe.HMGet(ctx, all[i].key, all[i].fields...)
		}
		lua.Exec(ctx, pipe)
	})
	changed := make(map[*settingsWatch]bool, len(all))
	for _, w := range list {
		for i, watch := range w.watches {
			cmd := found[at[watch]]
			// A hook of the client that does not let the command through leaves no error here, and no reply.
			if values := cmd.Val(); cmd.Err() == nil && len(values) == len(watch.fields) {
				if i > 0 && w.watches[0].lost { // the pool's settings were lost with its bucket's
					watch.last = nil
				}
				changed[watch] = watch.see(ctx, values) || changed[watch]
				lost = lost || watch.lost
			}
			w.news = w.news || changed[watch]
		}
	}
	return lost
}

// isReplaced reports whether an authoritative process is to write its settings again. It is if a read-only process wrote the effective ones. It also is
// if their writer has a lower revision, or the same revision and an earlier start.
func (s *Store) isReplaced(w *watched) bool {
	if s.Role == ReadOnly {
		return false
	}
	own := w.b.own.Load()
	older := func(now map[string]string, started, revision int64) bool {
		if now[FieldRateCount] == "" { // a script finds out
			return false
		}
		there, _ := strconv.ParseInt(now["revision"], 10, 64)
		since, _ := strconv.ParseInt(now[fieldStarted], 10, 64)
		return now[fieldOwned] == "0" || there < revision || there == revision && since < started
	}
	if older(w.watches[0].last, w.b.started.Load(), own.Revision) {
		return true
	}
	return len(w.watches) > 1 && own.Pool != nil && own.Pool.Name == w.b.Keys.Pool && older(w.watches[1].last, s.starts.get(own.Pool), own.Pool.Revision)
}

// readNews reads all effective settings of some buckets, logs what has changed, and adopts it.
func (s *Store) readNews(ctx context.Context, some []*watched) {
	read := make([]inForce, len(some))
	_ = s.forEach(len(some), func(s *Store, i int) (err error) { // a bucket that cannot be read is empty
		read[i], err = s.readInForce(ctx, some[i].b.Keys)
		return err
	})
	for n, w := range some {
		found := read[n]
		if found.conf[FieldRateCount] == "" {
			w.watches[0].last = nil // the next look reads it again
			continue
		}
		for i, watch := range w.watches {
			conf, since := found.conf, w.b.started.Load()
			if i > 0 {
				conf, since = found.pool, s.startOfPool(w.b)
			}
			s.logChanges(ctx, watch, conf, since)
		}
		own := w.b.own.Load()
		if s.Role == ReadOnly {
			_ = s.adopt(ctx, w.b, own, found) // a caller that finds it elsewhere asks again
			continue
		}
		s.warnOnce(ctx, w.b, own, found)
	}
}

// startOfPool returns when this process wrote the settings of a bucket's pool, 0 if it did not.
func (s *Store) startOfPool(b *Bucket) int64 {
	if pool := b.own.Load().Pool; pool != nil && s.Role == Authoritative {
		return s.starts.get(pool)
	}
	return 0
}

// logChanges logs what other processes and operators have changed since this process last looked.
func (s *Store) logChanges(ctx context.Context, w *settingsWatch, conf map[string]string, since int64) {
	all := readChanges("", conf[fieldChanges])
	if !w.read {
		w.read, w.newest = true, since
		if since == 0 && len(all) > 0 {
			w.newest = all[0].At.UnixMicro()
		}
	}
	for _, change := range slices.Backward(all) {
		if change.At.UnixMicro() <= w.newest {
			continue
		}
		w.newest = change.At.UnixMicro()
		switch {
		case change.Action != "":
			w.log.InfoContext(ctx, "what is in force was changed", changeAttributes(change)...)
		case change.By != s.By: // else it was logged when it was made
			w.log.WarnContext(ctx, "another process changed the settings in force", changeAttributes(change)...)
		}
	}
}

// see compares the settings with the previous ones, logs pauses, and reports whether there is more to read.
func (w *settingsWatch) see(ctx context.Context, values []any) (news bool) {
	now := make(map[string]string) // without room for all fields: most buckets have few of them, and this stays for each bucket
	for i, name := range w.fields {
		if text, ok := values[i].(string); ok {
			now[name] = text
		}
	}
	before, is := w.last, now[FieldRateCount] != ""
	switch {
	case !is && now[fieldLeftFor] != "": // the bucket has another place now
		return false
	case isLost(before, now):
		w.lost, w.last = true, nil
	}
	if !is { // no process has written it yet
		return false
	}
	if w.last = now; before == nil || w.lost {
		return true
	}
	if before["paused"] != now["paused"] {
		w.log.InfoContext(ctx, "a bucket was paused or resumed", "before", pausedText(before), "after", pausedText(now),
			"by", cmp.Or(now["paused_by"], "an operator"), "reason", now["paused_reason"])
	}
	return slices.ContainsFunc(w.fields, func(field string) bool { return before[field] != now[field] && !slices.Contains(pauseFields, field) })
}

func pausedText(fields map[string]string) string {
	since, _ := strconv.ParseInt(fields["paused"], 10, 64) // 0: it runs
	return PauseText(since)
}
