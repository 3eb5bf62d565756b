package store

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// A process whose configuration differs from the effective settings records the differences in Redis for as long as they last. Operators see
// there which processes disagree.

const (
	dissentMost  = 20 // differences that are recorded for a bucket
	dissentValue = 60 // bytes of each value
	dissentKept  = 45 * time.Second
)

// noteDifferences records where the configuration of this process differs, and removes a record that no longer holds. It sends nothing for
// buckets without a difference.
func (s *Store) noteDifferences(ctx context.Context, list []*watched) {
	var calls []lua.Call
	var of []*Bucket
	for _, w := range list {
		text := w.b.dissent.Load()
		if (text == nil || *text == "") && !w.b.noted.Load() {
			continue
		}
		calls = append(calls, lua.Call{Script: lua.NoteDifferences, Keys: w.b.Keys.Of(lua.NoteDifferences), Args: []any{s.By, deref(text)}})
		of = append(of, w.b)
	}
	if len(calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	for i, result := range lua.RunAll(ctx, s.Redis, calls) {
		if result.Err == nil {
			of[i].noted.Store(deref(of[i].dissent.Load()) != "")
		}
	}
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// dissentText returns the record of differences as JSON, shortened.
func dissentText(list []shaper.Difference) string {
	if len(list) == 0 {
		return ""
	}
	short := slices.Clone(list[:min(len(list), dissentMost)])
	for i := range short {
		short[i].Here, short[i].InForce = cut(short[i].Here), cut(short[i].InForce)
	}
	text, err := json.Marshal(short)
	if err != nil {
		return ""
	}
	return string(text)
}

func cut(text string) string {
	if len(text) <= dissentValue {
		return text
	}
	return strings.ToValidUTF8(text[:dissentValue], "") + " …"
}

// Authorships returns the authorship of buckets by their keys, in one pipeline (in a cluster, one per node). It leaves out buckets that it
// cannot read.
func (s *Store) Authorships(ctx context.Context, keys []Keys, withChanges bool) map[string]shaper.Authorship {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	found := make([]shaper.Authorship, len(keys))
	ok := make([]bool, len(keys))
	fields := []string{fieldBy, fieldStarted, fieldOwned}
	if withChanges {
		fields = append(fields, fieldChanges)
	}
	lua.Spread(ctx, s.Redis, len(keys), func(i int) string { return keys[i].Conf() }, func(some []int) {
		pipe := s.Redis.Pipeline()
		take := make([]func(), 0, len(some))
		now := pipe.Time(ctx)
		for _, i := range some {
			conf, differing := pipe.HMGet(ctx, keys[i].Conf(), fields...), pipe.HGetAll(ctx, keys[i].Differing())
			var ofPool *redis.SliceCmd
			if withChanges && keys[i].Pool != "" {
				ofPool = pipe.HMGet(ctx, PoolConf(keys[i].Pool), fieldChanges)
			}
			take = append(take, func() {
				if ok[i] = conf.Err() == nil && differing.Err() == nil; !ok[i] {
					return
				}
				a := &found[i]
				values := textsOf(conf.Val(), len(fields))
				a.By, a.Provisional = values[0], values[2] == "0"
				a.At = timeOf(values[1])
				a.Dissents = readDissents(differing.Val(), now.Val())
				if withChanges {
					a.Changes = readChanges("", values[3])
				}
				if ofPool != nil {
					a.Changes = append(a.Changes, readChanges("pool.", textsOf(ofPool.Val(), 1)[0])...)
					slices.SortStableFunc(a.Changes, func(x, y shaper.SettingsChange) int { return y.At.Compare(x.At) })
				}
			})
		}
		lua.Exec(ctx, pipe)
		for _, do := range take {
			do()
		}
	})
	all := make(map[string]shaper.Authorship, len(keys))
	for i, k := range keys {
		if ok[i] {
			all[k.Prefix] = found[i]
		}
	}
	return all
}

// readDissents reads which processes differ. One that has not said so lately has ended.
func readDissents(fields map[string]string, now time.Time) []shaper.Dissent {
	var list []shaper.Dissent
	for _, process := range slices.Sorted(maps.Keys(fields)) {
		at, text, _ := strings.Cut(fields[process], " ")
		micros, err := strconv.ParseInt(at, 10, 64)
		d := shaper.Dissent{Process: process, At: time.UnixMicro(micros).UTC()}
		if err != nil || now.Sub(d.At) > dissentKept || json.Unmarshal([]byte(text), &d.Differences) != nil {
			continue
		}
		list = append(list, d)
	}
	return list
}
