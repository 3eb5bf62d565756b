package dispatcher

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// watchEvery is how many rounds of the patrol lie between two looks at what is in force.
const watchEvery = 5

// settingsWatch notices that what is in force of a bucket or a pool is not what this process
// saw before. Operators and other processes change it in Redis, so that without this the log of
// who dispatches would not say why the pace is another now.
type settingsWatch struct {
	log      *slog.Logger
	key      string // of what scripts obey
	settings []shaper.Setting
	last     map[string]string // nil until it was seen
}

// watchesOf are those of the buckets of drains, and of their pools. Those that are among the known ones stay.
func watchesOf(log *slog.Logger, drains []*drain, known ...*settingsWatch) []*settingsWatch {
	var watches []*settingsWatch
	add := func(kind, name, key string, settings []shaper.Setting) {
		same := func(w *settingsWatch) bool { return w.key == key }
		if slices.ContainsFunc(watches, same) { // the pool of several buckets
			return
		}
		if at := slices.IndexFunc(known, same); at >= 0 {
			watches = append(watches, known[at])
			return
		}
		watches = append(watches, &settingsWatch{log: log.With(kind, name), key: key, settings: settings})
	}
	for _, d := range drains {
		add("bucket", d.Name, d.Keys.Conf(), shaper.Settings())
		if pool := d.Keys.Pool; pool != "" {
			add("pool", pool, store.PoolConf(pool), shaper.PoolSettings())
		}
	}
	return watches
}

// The fields that say of a bucket that it is paused; pools have none of these.
var pauseFields = []string{"paused", "paused_by", "paused_reason"}

func (w *settingsWatch) fields() []string {
	fields := slices.Clone(pauseFields)
	for _, names := range store.FieldsOf(w.settings) {
		fields = append(append(fields, names...), "set:"+names[0])
	}
	return fields
}

// watch looks at what is in force, in one round trip, in a cluster one to each node. What
// cannot be seen is looked at the next time.
func (d *Dispatcher) watch(ctx context.Context, watches []*settingsWatch) {
	ctx, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	found := make([]*redis.SliceCmd, len(watches))
	lua.Spread(ctx, d.store.Redis, len(watches), func(i int) string { return watches[i].key }, func(some []int) {
		pipe := d.store.Redis.Pipeline()
		for _, i := range some {
			found[i] = pipe.HMGet(ctx, watches[i].key, watches[i].fields()...)
		}
		_, _ = pipe.Exec(ctx) // the commands hold the errors
	})
	for i, w := range watches {
		// A hook of the client that does not let the question through leaves no error here, and no answer.
		if values := found[i].Val(); found[i].Err() == nil && len(values) == len(w.fields()) {
			w.see(ctx, values)
		}
	}
}

// see logs what has changed since the last time.
func (w *settingsWatch) see(ctx context.Context, values []any) {
	now := make(map[string]string, len(values))
	for i, name := range w.fields() {
		if text, ok := values[i].(string); ok {
			now[name] = text
		}
	}
	if now[store.FieldRateCount] == "" { // nobody has written it yet, or it was lost and will be written again
		return
	}
	before := w.last
	if w.last = now; before == nil {
		return
	}
	changes, by := w.changes(before, now)
	if len(changes) > 0 {
		w.log.InfoContext(ctx, "what is in force was changed", "changes", store.ChangesText(changes), "by", strings.Join(by, ", "))
	}
	if before["paused"] != now["paused"] {
		w.log.InfoContext(ctx, "a bucket was paused or resumed", "before", pausedText(before), "after", pausedText(now),
			"by", cmp.Or(now["paused_by"], "an operator"), "reason", now["paused_reason"])
	}
}

// changes are the settings that are others now, and who has set them.
func (w *settingsWatch) changes(before, now map[string]string) (changes []shaper.Change, by []string) {
	for _, setting := range w.settings {
		change := shaper.Change{Setting: setting, Before: store.SettingText(setting, before), After: store.SettingText(setting, now)}
		if change.Before == change.After {
			continue
		}
		changes = append(changes, change)
		who := "a configuration"
		if _, name, ok := strings.Cut(now["set:"+store.SettingFields[setting][0]], " "); ok {
			who = name
		} else if before["set:"+store.SettingFields[setting][0]] != "" {
			who = "a reset"
		}
		if !slices.Contains(by, who) {
			by = append(by, who)
		}
	}
	return changes, by
}

func pausedText(fields map[string]string) string {
	since, _ := strconv.ParseInt(fields["paused"], 10, 64) // 0: it runs
	return store.PauseText(since)
}
