package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

const (
	definedAtOnce = 100 // schedules in one script
	definedBytes  = 512 << 10
)

// defineLeft is the answer of define_schedules.lua where a bucket does not live any more.
const defineLeft = 2

// defineSchedules writes which schedules a bucket has, to the place where its settings are. The error is errOvertaken if the bucket has
// left that place meanwhile.
func (s *Store) defineSchedules(ctx context.Context, b *Bucket, own *shaper.Bucket, p place) error {
	run := func(action string, args []any) error {
		head := []any{own.Revision, p.number(), WakeChannel, WakeSchedules + b.Name, action}
		reply, err := s.Run(ctx, lua.DefineSchedules, b.Keys.Of(lua.DefineSchedules), append(head, args...)...)
		if err != nil {
			return fmt.Errorf("bucket %q: write its schedules: %w", b.Name, err)
		}
		r := lua.NewReader(reply)
		if r.Int() == defineLeft {
			return errOvertaken
		}
		return r.Err()
	}
	names := make([]any, len(own.Schedules))
	for i := range own.Schedules {
		names[i] = own.Schedules[i].Name
	}
	if err := run("keep", names); err != nil {
		return err
	}
	var some []any
	size := 0
	for i := range own.Schedules {
		text, err := DefinitionText(&own.Schedules[i])
		if err != nil {
			return fmt.Errorf("bucket %q: %w", b.Name, err)
		}
		some, size = append(some, own.Schedules[i].Name, text), size+len(text)
		if i == len(own.Schedules)-1 || len(some) == 2*definedAtOnce || size > definedBytes {
			if err := run("put", some); err != nil {
				return err
			}
			some, size = nil, 0
		}
	}
	return nil
}

// DefinitionText is a schedule as Redis has it. The first line is what its fire times are made from.
func DefinitionText(s *shaper.Schedule) (string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("schedule %q: %w", s.Name, err)
	}
	return s.Cron + " in " + s.Timezone + "\n" + string(text), nil
}

var errDefinition = errors.New("shaper: a schedule in Redis is not one of ours")

// ReadDefinition reads what DefinitionText has made.
func ReadDefinition(text string) (shaper.Schedule, error) {
	_, body, _ := strings.Cut(text, "\n")
	var s shaper.Schedule
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		return s, fmt.Errorf("%w: %w", errDefinition, err)
	}
	return s, nil
}

// micros is a time as the scripts have it, in JSON: Unix microseconds as a text; zero is "".
type micros struct{ time.Time }

func (m micros) MarshalJSON() ([]byte, error) {
	if m.IsZero() {
		return []byte(`""`), nil
	}
	return []byte(`"` + strconv.FormatInt(m.UnixMicro(), 10) + `"`), nil
}

func (m *micros) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil || text == "" || text == notReckoned {
		return err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	m.Time = time.UnixMicro(n).UTC()
	return err
}

// notReckoned stands for the due time of a schedule that is new, or was resumed.
const notReckoned = "0"

// ScheduleState is what Redis knows of a schedule: see lua/lib/schedule.lua.
type ScheduleState struct {
	Version int64  `json:"v"`
	Due     string `json:"due"` // text, to compare; notReckoned, or "" for none
	Manual  string `json:"manual"`

	Paused       micros `json:"paused"`
	PausedBy     string `json:"paused_by"`
	PausedReason string `json:"paused_reason"`
	Blocked      string `json:"blocked"`
	Job          string `json:"job"`
	Last         micros `json:"last"`
	Fired        int64  `json:"fired"`
	Missed       int64  `json:"missed"`
	Skipped      int64  `json:"skipped"`
}

// Reckoned is the fire that is due next; false if it is not known yet. The time is zero where there is none.
func (s *ScheduleState) Reckoned() (due time.Time, known bool) {
	return timeOf(s.Due), s.Due != notReckoned
}

// Requested is when an operator asked for a fire; zero: none did.
func (s *ScheduleState) Requested() time.Time { return timeOf(s.Manual) }

func timeOf(text string) time.Time {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// ReadScheduleState reads the state of a schedule.
func ReadScheduleState(text string) (s ScheduleState, err error) {
	if err = json.Unmarshal([]byte(text), &s); err != nil {
		err = fmt.Errorf("%w: %w", errDefinition, err)
	}
	return s, err
}

// Fire is a fire of a schedule as the scripts want it: see lua/lib/schedule.lua.
type Fire struct {
	Name    string `json:"name"`
	Version int64  `json:"v"`
	Due     string `json:"due"`
	At      micros `json:"at"`
	Next    micros `json:"next"`
	Manual  bool   `json:"manual,omitempty"`
	Skip    bool   `json:"skip,omitempty"`
	Job     string `json:"job,omitempty"`
	By      string `json:"by"`
	Missed  int    `json:"missed"`
	First   micros `json:"first"`
}

// FireOf is a fire that is due by a state.
func FireOf(name string, s *ScheduleState, by string) *Fire {
	return &Fire{Name: name, Version: s.Version, Due: s.Due, By: by}
}

// SetTimes says which fire it is, which comes next, and which are given up.
func (f *Fire) SetTimes(at, next time.Time, missed int, first time.Time) {
	f.At, f.Next, f.Missed, f.First = micros{at}, micros{next}, missed, micros{first}
}

// Text is the fire as an argument of a script.
func (f *Fire) Text() (string, error) {
	text, err := json.Marshal(f)
	return string(text), err
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

// ScheduleRuns returns what became of the last fires of a schedule, newest first; at most 20.
func (s *Store) ScheduleRuns(ctx context.Context, b *Bucket, name string) ([]shaper.ScheduleRun, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	values, err := s.Redis.HMGet(ctx, b.Keys.Schedules(), name+":state", name+":runs").Result()
	if err != nil {
		return nil, fmt.Errorf("schedule %q: read its runs: %w", name, err)
	}
	if values[0] == nil {
		return nil, fmt.Errorf("schedule %q: %w", name, shaper.ErrNotFound)
	}
	text, _ := values[1].(string)
	var runs []shaper.ScheduleRun
	for line := range strings.Lines(text) {
		var r run
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("schedule %q: %w: %w", name, errDefinition, err)
		}
		runs = append(runs, shaper.ScheduleRun{
			Fire: r.At.Time, At: r.Now.Time, By: r.By, AskedBy: r.AskedBy, Outcome: r.Outcome, Job: r.Job, Count: max(r.Count, 1), Reason: r.Reason,
		})
	}
	return runs, nil
}

const (
	schedulesAtOnce = 16 // definitions in one answer
	nextFires       = 5
)

// Schedules returns the schedules of a bucket by name; of these only the one that is named, unless that is "".
func (s *Store) Schedules(ctx context.Context, b *Bucket, only string) ([]shaper.ScheduleInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	names := []string{only}
	if only == "" {
		var err error
		if names, err = s.Redis.ZRange(ctx, b.Keys.ScheduleDue(), 0, shaper.MaxSchedules-1).Result(); err != nil {
			return nil, fmt.Errorf("bucket %q: list its schedules: %w", b.Name, err)
		}
		slices.Sort(names)
	}
	var found []shaper.ScheduleInfo
	for some := range slices.Chunk(names, schedulesAtOnce) {
		fields := make([]string, 0, 2*len(some))
		for _, name := range some {
			fields = append(fields, name, name+":state")
		}
		values, err := s.Redis.HMGet(ctx, b.Keys.Schedules(), fields...).Result()
		if err != nil {
			return nil, fmt.Errorf("bucket %q: read its schedules: %w", b.Name, err)
		}
		for i := range some {
			definition, ok := values[2*i].(string)
			state, _ := values[2*i+1].(string)
			if !ok { // it went meanwhile
				continue
			}
			info, err := scheduleInfo(b.Name, definition, state)
			if err != nil {
				return nil, fmt.Errorf("bucket %q: schedule %q: %w", b.Name, some[i], err)
			}
			found = append(found, info)
		}
	}
	return found, nil
}

func scheduleInfo(bucket, definition, stateText string) (shaper.ScheduleInfo, error) {
	s, err := ReadDefinition(definition)
	if err != nil {
		return shaper.ScheduleInfo{}, err
	}
	state, err := ReadScheduleState(stateText)
	if err != nil {
		return shaper.ScheduleInfo{}, err
	}
	info := shaper.ScheduleInfo{
		Schedule: s, Bucket: bucket, Paused: state.Paused.Time, PausedBy: state.PausedBy, PausedReason: state.PausedReason,
		Blocked: state.Blocked, Requested: state.Requested(), Last: state.Last.Time, LastJob: state.Job,
		Fired: state.Fired, Missed: state.Missed, Skipped: state.Skipped,
	}
	due, known := state.Reckoned()
	rule, err := s.Rule()
	if err != nil || !known || due.IsZero() || !info.Paused.IsZero() {
		return info, nil //nolint:nilerr // a program that knows more lines has written it, and fires it
	}
	info.Next = rule.NextN(due.Add(-time.Second), nextFires)
	return info, nil
}

// BucketOfSchedule is the bucket that has the schedule, nil if none of the configuration has. One round trip.
func (s *Store) BucketOfSchedule(ctx context.Context, name string) (*Bucket, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	all := s.All()
	pipe := s.Redis.Pipeline()
	found := make([]*redis.BoolCmd, len(all))
	for i, b := range all {
		found[i] = pipe.HExists(ctx, b.Keys.Schedules(), name+":state")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("schedule %q: look for its bucket: %w", name, err)
	}
	for i, b := range all {
		if found[i].Val() {
			return b, nil
		}
	}
	return nil, nil //nolint:nilnil // it is not an error
}

// ControlSchedule runs control_schedule.lua. It reports whether something changed, and when the fire that waits was asked for.
func (s *Store) ControlSchedule(ctx context.Context, b *Bucket, name, action, by, reason string) (changed bool, requested time.Time, err error) {
	reply, err := s.Run(ctx, lua.ControlSchedule, b.Keys.Of(lua.ControlSchedule), WakeChannel, WakeSchedules+b.Name, name, action, by, reason)
	if err != nil {
		return false, time.Time{}, fmt.Errorf("schedule %q: %s: %w", name, action, err)
	}
	r := lua.NewReader(reply)
	if r.Left() == 0 {
		return false, time.Time{}, fmt.Errorf("schedule %q: %w", name, shaper.ErrNotFound)
	}
	changed, at := r.Int() == 1, r.Int()
	if at > 0 {
		requested = time.UnixMicro(at).UTC()
	}
	return changed, requested, r.Err()
}
