package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// ScheduleHome is a bucket that has, or may have, schedules.
type ScheduleHome struct {
	Bucket   string
	Keys     Keys
	Orphaned bool                  // the configuration of this process does not have the bucket
	Source   shaper.ScheduleSource // of the schedule that was requested
}

// HomeOf returns the home for a bucket of the configuration.
func HomeOf(b *Bucket) ScheduleHome { return ScheduleHome{Bucket: b.Name, Keys: b.Keys} }

// ScheduleHomes returns all buckets that Redis knows and where they live: first configured buckets in their order, then the others by name. One
// round trip.
func (s *Store) ScheduleHomes(ctx context.Context) ([]ScheduleHome, error) {
	known, err := s.Index(ctx)
	if err != nil {
		return nil, err
	}
	homes := make([]ScheduleHome, 0, len(known))
	for _, b := range s.All() {
		home := HomeOf(b)
		at := slices.IndexFunc(known, func(i Indexed) bool { return i.Name == b.Name })
		if at >= 0 {
			if found := known[at].Keys; found.Prefix != b.Keys.Prefix { // another configuration has it elsewhere
				home.Keys = found
			}
			known = slices.Delete(known, at, at+1)
		}
		homes = append(homes, home)
	}
	for _, i := range known {
		homes = append(homes, ScheduleHome{Bucket: i.Name, Keys: i.Keys, Orphaned: true})
	}
	return homes, nil
}

// FindSchedule returns the buckets that have a schedule of this name. Two round trips.
func (s *Store) FindSchedule(ctx context.Context, name string) ([]ScheduleHome, error) {
	homes, err := s.ScheduleHomes(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	pipe := s.Redis.Pipeline()
	exist, made := make([]*redis.BoolCmd, len(homes)), make([]*redis.BoolCmd, len(homes))
	for i, home := range homes {
		exist[i], made[i] = pipe.HExists(ctx, home.Keys.Schedules(), name+":state"), pipe.HExists(ctx, home.Keys.Schedules(), name+":made")
	}
	if _, err := pipe.Exec(ctx); err != nil && len(homes) > 0 {
		return nil, fmt.Errorf("schedule %q: look for its bucket: %w", name, err)
	}
	var found []ScheduleHome
	for i, home := range homes {
		if !exist[i].Val() {
			continue
		}
		if home.Source = shaper.ScheduleOfConfig; made[i].Val() {
			home.Source = shaper.ScheduleOfAPI
		}
		found = append(found, home)
	}
	return found, nil
}

// run is a line of the history of a schedule.
type run struct {
	At      micros                 `json:"at"`
	Now     micros                 `json:"now"`
	By      string                 `json:"by"`
	AskedBy string                 `json:"asked_by"`
	Outcome shaper.ScheduleOutcome `json:"outcome"`
	Job     string                 `json:"job"`
	Count   int64                  `json:"count"`
	Reason  string                 `json:"reason"`
}

// Codes of schedule_runs.lua that are not states of a job.
const (
	runHasNoJob      = -1
	runJobRemembered = 1 // and all above
)

// ScheduleRuns returns what became of the last fires of a schedule, newest first; at most 20. One round trip.
func (s *Store) ScheduleRuns(ctx context.Context, home ScheduleHome, name string) ([]shaper.ScheduleRun, error) {
	reply, err := s.Run(ctx, lua.ScheduleRuns, home.Keys.Of(lua.ScheduleRuns), name)
	if err != nil {
		return nil, fmt.Errorf("schedule %q: read its runs: %w", name, err)
	}
	reader := lua.NewReader(reply)
	var runs []shaper.ScheduleRun
	for reader.Left() > 0 && reader.Err() == nil {
		line, code := reader.Text(), reader.Int()
		var r run
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("schedule %q: %w: %w", name, errDefinition, err)
		}
		one := shaper.ScheduleRun{
			Fire: r.At.Time, At: r.Now.Time, By: r.By, AskedBy: r.AskedBy, Outcome: r.Outcome, Job: r.Job, Count: max(r.Count, 1), Reason: r.Reason,
		}
		if code != runHasNoJob {
			one.Jobs, one.JobState = 1, shaper.StateForgotten
		}
		if code >= runJobRemembered {
			one.JobState = codec.StateOf(code)
		}
		runs = append(runs, one)
	}
	return runs, reader.Err()
}

const (
	schedulesAtOnce = 8 // definitions in one reply
	nextFires       = 5

	// schedulesMost bounds the schedules of a bucket, from the configuration and from the API.
	schedulesMost = 2 * shaper.MaxSchedules
)

// AllSchedules returns the schedules of all buckets that Redis knows, by bucket and name. It takes two round trips, and one for each eight
// schedules of a bucket.
func (s *Store) AllSchedules(ctx context.Context) ([]shaper.ScheduleInfo, error) {
	homes, err := s.ScheduleHomes(ctx)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	pipe := s.Redis.Pipeline()
	names := make([]*redis.StringSliceCmd, len(homes))
	for i, home := range homes {
		names[i] = pipe.ZRange(bounded, home.Keys.ScheduleDue(), 0, schedulesMost-1)
	}
	if _, err := pipe.Exec(bounded); err != nil && len(homes) > 0 {
		return nil, fmt.Errorf("list the schedules: %w", err)
	}
	var all []shaper.ScheduleInfo
	for i, home := range homes {
		some := names[i].Val()
		slices.Sort(some)
		found, err := s.Schedules(ctx, home, some...)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// Schedules returns the named schedules of a bucket. It takes one round trip for each eight.
func (s *Store) Schedules(ctx context.Context, home ScheduleHome, names ...string) ([]shaper.ScheduleInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	var found []shaper.ScheduleInfo
	for some := range slices.Chunk(names, schedulesAtOnce) {
		fields := make([]string, 0, 4*len(some))
		for _, name := range some {
			fields = append(fields, name, name+":state", name+":made", name+":configured")
		}
		values, err := s.Redis.HMGet(ctx, home.Keys.Schedules(), fields...).Result()
		if err != nil {
			return nil, fmt.Errorf("bucket %q: read its schedules: %w", home.Bucket, err)
		}
		for i, name := range some {
			var texts [4]string
			for n := range texts {
				texts[n], _ = values[4*i+n].(string)
			}
			if texts[0] == "" { // it was removed meanwhile
				continue
			}
			info, err := scheduleInfo(home, texts[0], texts[1])
			if err != nil {
				return nil, fmt.Errorf("bucket %q: schedule %q: %w", home.Bucket, name, err)
			}
			if at, by, isMade := strings.Cut(texts[2], " "); isMade {
				info.Source, info.Made, info.MadeBy = shaper.ScheduleOfAPI, timeOf(at), by
			}
			info.ConfiguredToo = texts[3] != ""
			found = append(found, info)
		}
	}
	return found, nil
}

func scheduleInfo(home ScheduleHome, definition, stateText string) (shaper.ScheduleInfo, error) {
	s, err := ReadDefinition(definition)
	if err != nil {
		return shaper.ScheduleInfo{}, err
	}
	state, err := ReadScheduleState(stateText)
	if err != nil {
		return shaper.ScheduleInfo{}, err
	}
	info := shaper.ScheduleInfo{
		Schedule: s, Bucket: home.Bucket, Orphaned: home.Orphaned, Source: shaper.ScheduleOfConfig,
		Paused: state.Paused.Time, PausedBy: state.PausedBy, PausedReason: state.PausedReason,
		Blocked: state.Blocked, Requested: state.Requested(), Last: state.Last.Time, LastJob: state.Job,
		Fired: state.Fired, Missed: state.Missed, Skipped: state.Skipped,
	}
	due, known := state.NextDue()
	rule, err := s.Rule()
	if err != nil || !known || due.IsZero() || !info.Paused.IsZero() || home.Orphaned {
		return info, nil //nolint:nilerr // a program that knows more lines has written it, and fires it
	}
	info.Next = rule.NextN(due.Add(-time.Second), nextFires)
	return info, nil
}

// ScheduleChange is the result of a change of a schedule: a reply of control_schedule.lua.
type ScheduleChange int64

// The results.
const (
	ScheduleUnchanged ScheduleChange = iota
	ScheduleChanged
	ScheduleUnknown
	ScheduleConfigured // the schedule is in the configuration
	ScheduleTooMany
)

// ControlSchedule runs control_schedule.lua. It returns the result of the change, and when the waiting fire was requested. The error is
// [shaper.ErrUnknownBucket] if the bucket does not live there. One round trip.
func (s *Store) ControlSchedule(ctx context.Context, home ScheduleHome, name, action, by, text string) (change ScheduleChange, requested time.Time, err error) {
	args := []any{WakeChannel, WakeSchedules + home.Keys.Name, name, action, by, text, strconv.Itoa(shaper.MaxSchedules)}
	var r *lua.Reader
	if b := s.Known(home.Bucket); b != nil && b.Keys.Prefix == home.Keys.Prefix {
		r, err = s.RunConfigured(ctx, b, lua.ControlSchedule, b.Keys.Of(lua.ControlSchedule), args...)
	} else {
		var reply any
		if reply, err = s.Run(ctx, lua.ControlSchedule, home.Keys.Of(lua.ControlSchedule), args...); err == nil {
			if r = lua.NewReader(reply); r.Int() != 0 {
				err = fmt.Errorf("%w %q", shaper.ErrUnknownBucket, home.Bucket)
			}
		}
	}
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("schedule %q: %s: %w", name, action, err)
	}
	change = ScheduleChange(r.Int())
	if at := r.Int(); at > 0 {
		requested = time.UnixMicro(at).UTC()
	}
	return change, requested, r.Err()
}
