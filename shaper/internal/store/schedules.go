package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

const (
	definedAtOnce = 100 // schedules in one script
	definedBytes  = 512 << 10
)

// Replies of define_schedules.lua.
const (
	defineLeft = 2 // the bucket does not live there any more
	defineMore = 3 // the same call continues with the rest
)

// defineSchedules writes which schedules a bucket has, to the place where its settings are. Up to 100 of at most 512 KiB are one script:
// so of two processes at the same time the last one wins. The error is errOvertaken if the bucket has left that place meanwhile.
func (s *Store) defineSchedules(ctx context.Context, b *Bucket, own *shaper.Bucket, p place, started int64) error {
	keys := TaggedKeys(p.tag, own.KeyName()).Of(lua.DefineSchedules)
	some, keep, size := make([]any, 0, len(own.Schedules)), any(len(own.Schedules)), 0
	for i := range own.Schedules {
		some = append(some, own.Schedules[i].Name)
	}
	put := func() error {
		err := s.define(ctx, b, keys, append([]any{own.Revision, p.number(), WakeChannel, WakeSchedules + own.KeyName(), started, keep}, some...))
		some, keep, size = some[:0], "", 0
		return err
	}
	for i := range own.Schedules {
		text, err := DefinitionText(&own.Schedules[i])
		if err != nil {
			return fmt.Errorf("bucket %q: %w", b.Name, err)
		}
		some, size = append(some, own.Schedules[i].Name, text), size+len(text)
		if i < len(own.Schedules)-1 && (i%definedAtOnce == definedAtOnce-1 || size > definedBytes) {
			if err := put(); err != nil {
				return err
			}
		}
	}
	return put()
}

// define runs define_schedules.lua, until there is nothing more to do.
func (s *Store) define(ctx context.Context, b *Bucket, keys []string, args []any) error {
	for {
		reply, err := s.Run(ctx, lua.DefineSchedules, keys, args...)
		if err != nil {
			return fmt.Errorf("bucket %q: write its schedules: %w", b.Name, err)
		}
		r := lua.NewReader(reply)
		code, _ := r.Int(), r.Int()
		for r.Left() > 0 && r.Err() == nil {
			s.Log.ErrorContext(ctx, "a schedule of the configuration is not in force, as one of its name was made through the API: "+
				"remove that with `dispatcher schedule remove`, and this one comes, or give this one another name", "bucket", b.Name, "schedule", r.Text())
		}
		switch {
		case r.Err() != nil:
			return fmt.Errorf("bucket %q: script define_schedules: %w", b.Name, r.Err())
		case code == defineLeft:
			return errOvertaken
		case code != defineMore:
			return nil
		}
	}
}

// DefinitionText returns a schedule as Redis stores it. Its fire times depend only on the first line.
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
	if err := json.Unmarshal(data, &text); err != nil || text == "" || text == notComputed {
		return err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	m.Time = time.UnixMicro(n).UTC()
	return err
}

// notComputed is the due time of a schedule that is new, or was resumed.
const notComputed = "0"

// ScheduleState is the state of a schedule in Redis: see lua/lib/schedule.lua.
type ScheduleState struct {
	Version int64  `json:"v"`
	Due     string `json:"due"` // text, to compare; notComputed, or "" for none
	Since   micros `json:"since"`
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

// NextDue returns the next fire; known is false if it is not computed yet. The time is zero if there is none.
func (s *ScheduleState) NextDue() (due time.Time, known bool) {
	return timeOf(s.Due), s.Due != notComputed
}

// wrongClock is how far ahead of the clock the last fire must be to prove that the clock was wrong.
const wrongClock = 24 * time.Hour

// From returns the time after which a schedule first fires, if that is not computed yet. It counts from the definition or the resumption, so no
// fire is lost before a dispatcher sees the schedule. It does not go back to an earlier fire if the clock was set back by less than a day. An
// earlier fire further ahead came from a wrong clock and is ignored.
func (s *ScheduleState) From(now time.Time) time.Time {
	from := now
	if !s.Since.IsZero() && s.Since.Before(now) {
		from = s.Since.Time
	}
	if s.Last.After(from) && s.Last.Sub(now) < wrongClock {
		from = s.Last.Time
	}
	return from
}

// Requested returns when an operator requested a fire; zero if none did.
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

// Fire is a fire of a schedule, as an argument of scripts: see lua/lib/schedule.lua.
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

// FireOf returns the fire that is due by a state.
func FireOf(name string, s *ScheduleState, by string) *Fire {
	return &Fire{Name: name, Version: s.Version, Due: s.Due, By: by}
}

// SetTimes sets the time of the fire, the time of the next one, and the fires that were missed.
func (f *Fire) SetTimes(at, next time.Time, missed int, first time.Time) {
	f.At, f.Next, f.Missed, f.First = micros{at}, micros{next}, missed, micros{first}
}

// Text returns the fire as an argument of a script.
func (f *Fire) Text() (string, error) {
	text, err := json.Marshal(f)
	return string(text), err
}
