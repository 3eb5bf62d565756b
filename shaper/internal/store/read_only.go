package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// A read-only process obeys the effective settings: the authoritative process writes the place and the levels of a bucket. See [Role].

// ErrAdopted says that a bucket lives at another place, or has other levels, than this process knew. It knows now: the caller asks [Store.Known]
// for the bucket again. It is an [shaper.ErrTagChanged].
var ErrAdopted error = elsewhereError{"the bucket has changed its pool or its flows meanwhile: try again"}

// inForce is the stored settings of a bucket and of its pool.
type inForce struct {
	keys       Keys
	conf, pool map[string]string
}

// readInForce reads the settings of a bucket and its pool, in one round trip, which it may share.
func (s *Store) readInForce(ctx context.Context, k Keys) (inForce, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	conf, pool := redis.NewMapStringStringCmd(ctx, "hgetall", k.Conf()), &redis.MapStringStringCmd{}
	cmds := []redis.Cmder{conf}
	if k.Pool != "" {
		pool = redis.NewMapStringStringCmd(ctx, "hgetall", PoolConf(k.Pool))
		cmds = append(cmds, pool)
	}
	if err := s.process(ctx, cmds...); err != nil {
		return inForce{}, fmt.Errorf("read the settings in force: %w", err)
	}
	return inForce{k, conf.Val(), pool.Val()}, nil
}

// moves reports whether a bucket has left this place, or has come to it and is not configured yet: see lua/relocate.lua.
func (f *inForce) moves() bool { return f.conf[FieldRateCount] == "" && f.conf["generation"] != "" }

// ensureConfigured creates the missing settings of a bucket for a read-only process, and adopts the effective ones.
func (s *Store) ensureConfigured(ctx context.Context, b *Bucket) error {
	own := b.own.Load()
	for range poolChangeTries {
		find := s.located
		if isNamed(own) {
			find = func(ctx context.Context, own *shaper.Bucket) (place, error) { return s.placeOf(ctx, own) }
		}
		p, err := find(ctx, own)
		if err != nil {
			return fmt.Errorf("bucket %q: %w", b.Name, err)
		}
		acts := p.under(own)
		if err := p.fits(acts); err != nil {
			return err
		}
		found, err := s.readInForce(ctx, TaggedKeys(cmp.Or(p.tag, p.name), p.name))
		if err != nil {
			return fmt.Errorf("bucket %q: %w", b.Name, err)
		}
		if schema := found.number("schema"); schema > schemaVersion {
			return newerSchema("bucket", b.Name, schema)
		}
		if found.conf[FieldRateCount] != "" {
			return s.adopt(ctx, b, own, found)
		}
		if isNamed(own) && found.moves() { // a read-only process that has settings of its own finds that out as it writes them
			if err = s.catchUp(ctx, acts, p, found.number("generation"), found.conf["left_for"]); err != nil && !errors.Is(err, errOvertaken) {
				return err
			}
			continue
		}
		if isNamed(own) {
			return fmt.Errorf("%w %q: Redis has no settings of it, and this program gives only its name: start a dispatcher that has the bucket, "+
				"or give its settings here", shaper.ErrUnknownBucket, b.Name)
		}
		if _, err = s.writeConf(ctx, b, acts, p); err != nil && !errors.Is(err, errOvertaken) {
			return err
		}
	}
	return fmt.Errorf("bucket %q: %w", b.Name, errOvertaken)
}

// adopt makes the process obey the settings that were found.
func (s *Store) adopt(ctx context.Context, b *Bucket, own *shaper.Bucket, found inForce) error {
	settings, err := found.settings(own)
	if err != nil {
		return fmt.Errorf("bucket %q: %w", b.Name, err)
	}
	k := found.keys.As(levelsOf(settings))
	if b.Keys == k {
		b.Settings.Store(settings)
		s.warnOnce(ctx, b, own, found)
		b.joined.Store(true)
		b.Configured.Store(b.own.Load() == own) // else a reload came first: once more
		return nil
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	set := s.set.Load()
	current := set.byName[b.Name]
	if current == nil || current.own.Load() != own { // a reload came first
		return ErrAdopted
	}
	if current.Keys != k {
		next := newBucket(own, k)
		next.Settings.Store(settings)
		next.warned.Store(b.warned.Load())
		s.warnOnce(ctx, next, own, found)
		next.joined.Store(true)
		next.Configured.Store(true)
		after := &bucketSet{byName: maps.Clone(set.byName), order: slices.Clone(set.order), renamed: set.renamed}
		after.byName[b.Name] = next
		after.order[slices.Index(after.order, current)] = next
		s.set.Store(after)
	}
	return ErrAdopted
}

// warnOnce logs where the configuration of this process differs from the effective settings. It logs again only if the differences change.
func (s *Store) warnOnce(ctx context.Context, b *Bucket, own *shaper.Bucket, found inForce) {
	list := s.differences(own, found)
	text, dissent := DifferencesText(list), dissentText(list)
	before := b.warned.Swap(&text)
	b.dissent.Store(&dissent)
	switch {
	case s.Quiet:
	case text == "" || before != nil && *before == text:
	case s.Role == ReadOnly:
		s.Log.WarnContext(ctx, "the settings of this process are not those in force: it changes nothing and goes by those in force; dispatchers write them",
			"bucket", b.Name, "differences", text, "written_by", found.writer(list))
	default:
		s.Log.WarnContext(ctx, "the settings of this process are not those in force: the higher revision wins, and of equal ones the dispatcher that "+
			"started or reloaded last", "bucket", b.Name, "differences", text, "written_by", found.writer(list))
	}
}

// writer names the process that wrote what differs.
func (f *inForce) writer(list []shaper.Difference) string {
	by := f.conf[fieldBy]
	if len(list) > 0 && strings.HasPrefix(string(list[0].Setting), "pool.") {
		by = f.pool[fieldBy]
	}
	return by
}

// differences returns where a configuration differs. A bucket that is given only by its name has none.
func (s *Store) differences(own *shaper.Bucket, found inForce) []shaper.Difference {
	if isNamed(own) {
		return nil
	}
	fields, err := settingsOf(own)
	if err != nil {
		return nil
	}
	list := differencesOf("", fields, found.conf)
	if own.MaxInFlight == 0 && own.DeliveryTimeout == 0 { // the configuration does not set it
		list = slices.DeleteFunc(list, func(d shaper.Difference) bool { return d.Setting == shaper.SettingMaxInFlight })
	}
	if here := TaggedKeys(tagOf(own), own.KeyName()); here.Pool != found.keys.Pool {
		return append(list, shaper.Difference{Setting: "pool", Here: poolText(here.Tag(), here.Name), InForce: poolText(found.keys.Tag(), found.keys.Name)})
	}
	if own.Pool != nil {
		list = append(list, differencesOf("pool.", poolSettingsOf(own.Pool), found.pool)...)
	}
	return list
}

// settings returns a bucket's settings for a client: the effective ones, and its own configuration for the rest.
func (f *inForce) settings(own *shaper.Bucket) (*shaper.Bucket, error) {
	b := *own
	levels, err := strconv.Atoi(cmp.Or(f.conf["flows"], "0"))
	if err != nil || levels < codec.LevelsNone || levels > codec.LevelsGroups {
		return nil, errors.New("its data is of a newer program: use a newer program")
	}
	if isNamed(own) {
		b = shaper.DefaultBucket()
		b.Name = own.Name
		if b.Limits, _, err = admission.DecodeLimits(f.conf); err != nil {
			return nil, err
		}
	}
	f.parts(&b, levels)
	OfBuckets.Read(&b, f.conf)
	b.Callbacks = shaper.Callbacks{
		Bucket: f.conf[fieldCallbackBucket], URL: f.conf[fieldCallbackURL], FailureURL: f.conf[fieldCallbackFailure], MaxPayload: f.number(fieldCallbackPayload),
		Origins: strings.Fields(f.conf[fieldCallbackOrigins]),
	}
	if b.Batch = own.Batch; b.Batch.Has() != (f.conf["batch"] != "") {
		b.Batch = readBatch(f.conf["batch"])
	}
	b.Pool = f.poolSettings(&b)
	b.PartBudgets = f.conf[fieldPartBudgets] != ""
	return &b, nil
}

func (f *inForce) number(field string) int64 {
	n, _ := strconv.ParseInt(f.conf[field], 10, 64) // 0 without one
	return n
}

// parts sets flows and groups of the bucket, if it has such levels.
func (f *inForce) parts(b *shaper.Bucket, levels int) {
	flow, group := b.Flow, b.Group
	b.Flow, b.Group = nil, nil
	if levels != codec.LevelsNone {
		settings := shaper.DefaultFlowSettings()
		if flow != nil {
			settings = *flow
		}
		settings.DefaultURL = f.conf[fieldDefaultURL]
		b.Flow = &settings
	}
	if levels == codec.LevelsGroups {
		settings := shaper.DefaultGroupSettings()
		if group != nil {
			settings = *group
		}
		settings.DefaultURL = f.conf[fieldDefaultURL]
		b.Group = &settings
	}
}

// poolSettings returns the settings of the pool, nil for a bucket in no pool. A pool whose settings were lost gets the rate of the bucket.
func (f *inForce) poolSettings(b *shaper.Bucket) *shaper.Pool {
	switch {
	case f.keys.Pool == "":
		return nil
	case f.pool[FieldRateCount] == "":
		return &shaper.Pool{Name: f.keys.Pool, Rate: b.Rate, Burst: 1}
	}
	of := inForce{conf: f.pool}
	pool := &shaper.Pool{Name: f.keys.Pool, Revision: of.number("revision")}
	OfPools.Read(pool, f.pool)
	return pool
}

// readBatch reads the text of batches. See codec.BatchText.
func readBatch(text string) shaper.BatchSettings {
	parts := strings.Fields(text)
	if len(parts) != 3 { //nolint:mnd // size, bytes, wait
		return shaper.BatchSettings{}
	}
	var n [3]int64
	for i, part := range parts {
		n[i], _ = strconv.ParseInt(part, 10, 64)
	}
	return shaper.BatchSettings{MaxSize: n[0], MaxBytes: n[1], MaxWait: lua.Microseconds(n[2])}
}

// wroteReadOnly reports whether a read-only process wrote the settings at a place, so that an authoritative process replaces them.
func (s *Store) wroteReadOnly(ctx context.Context, k Keys) bool {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	cmd := redis.NewSliceCmd(ctx, "hmget", k.Conf(), fieldOwned)
	err := s.process(ctx, cmd)
	return err == nil && len(cmd.Val()) == 1 && cmd.Val()[0] == "0"
}
