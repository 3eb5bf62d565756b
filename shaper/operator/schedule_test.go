package operator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// scheduled is a configuration of one revision with buckets that have schedules, in force on a server.
type scheduled struct {
	t      *testing.T
	server *redistest.Server
}

// configured has a process start with these buckets, and returns its operator.
func (s scheduled) configured(log *slog.Logger, buckets ...shaper.Bucket) *operator.Operator {
	s.t.Helper()
	cfg := producer.Config{Redis: s.server.Client(), Buckets: buckets, Logger: log}
	client := must.Get(rig.NewActors(cfg))(s.t)
	must.OK(s.t, client.JoinPools(s.t.Context()))
	op := must.Get(operator.New(operator.Config{Timeout: rig.Patience, Redis: cfg.Redis, Buckets: buckets, Logger: log}))(s.t)
	return op
}

// list are the names of all schedules with what is special about each.
func (s scheduled) list(op *operator.Operator) string {
	s.t.Helper()
	all := must.Get(op.Schedules(s.t.Context()))(s.t)
	var texts []string
	for _, one := range all {
		text := fmt.Sprintf("%s/%s %s %s", one.Bucket, one.Name, one.Source, one.MadeBy)
		if one.Orphaned {
			text += " orphaned"
		}
		if one.ConfiguredToo {
			text += " configured too"
		}
		texts = append(texts, strings.ReplaceAll(strings.TrimSpace(text), "  ", " "))
	}
	return strings.Join(texts, ", ")
}

func (s scheduled) wants(what, got, want string) {
	s.t.Helper()
	must.Equal(s.t, got, want, "%s", what)
}

func with(b shaper.Bucket, revision int64, names ...string) shaper.Bucket {
	b.Revision, b.Schedules = revision, nil
	for _, name := range names {
		b.Schedules = append(b.Schedules, shaper.Schedule{Name: name, Cron: "0 2 * * *"})
	}
	return b
}

var hourly = shaper.Schedule{Cron: "@hourly"}

// A schedule that was made by Set is kept over reloads, older files and changes of the pool, and goes by Remove.
func TestSchedulesOfOperators(t *testing.T) {
	t.Parallel()
	s := scheduled{t, redistest.Start(t)}
	ctx := t.Context()
	b := rig.Bucket("b", 10)
	op := s.configured(nil, with(b, 2, "c"))
	made := op.As("ann").Schedule("made")
	for i, want := range []bool{true, false} {
		must.Be(t, must.Get(made.Set(ctx, "b", hourly))(t), want, "set %d", i)
	}
	if changed, err := op.As("bob").Schedule("made").Set(ctx, "b", shaper.Schedule{Cron: "@daily"}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	const want = "b/c config, b/made api bob"
	s.wants("made", s.list(op), want)
	info, err := made.Info(ctx)
	if err != nil || info.Made.IsZero() || info.Cron != "@daily" {
		t.Errorf("%+v, %v", info, err)
	}

	s.wants("an older file", s.list(s.configured(nil, with(b, 1, "older"))), want)
	s.wants("a reload", s.list(s.configured(nil, with(b, 3, "d"))), "b/d config, b/made api bob")
	joined := rig.In(rig.PoolNamed("vendor"), with(b, 4, "d"))
	op = s.configured(nil, joined)
	s.wants("another pool", s.list(op), "b/d config, b/made api bob")
	must.Equal(t, s.server.Client().ZCard(ctx, stored.KeyIn("vendor", "b", "schedule_due")).Val(), 2, "of them are due some time, want both")
	must.Get(op.As("ann").Schedule("made").Remove(ctx))(t)
	s.wants("removed", s.list(op), "b/d config")
	if _, err := op.As("ann").Schedule("made").Remove(ctx); !errors.Is(err, operator.ErrNoSchedule) {
		t.Error(err)
	}
}

// A name is that of one schedule: the error says where the other one is. A configuration that brings the name later waits, or where it
// brings it for another bucket both fire, until the one of the API is removed.
func TestConflictsOfSchedules(t *testing.T) {
	t.Parallel()
	s := scheduled{t, redistest.Start(t)}
	ctx := t.Context()
	a, b := rig.Bucket("a", 10), rig.Bucket("b", 10)
	op := s.configured(nil, with(a, 0, "c"), b)
	set := func(bucket, name string) error {
		_, err := op.As("ann").Schedule(name).Set(ctx, bucket, hourly)
		return err
	}
	conflicts := func(what string, err error, want string) {
		t.Helper()
		if _, ok := errors.AsType[*operator.ScheduleConflictError](err); !ok || err.Error() != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	const isConfigured = `schedule "c": is in the configuration, for bucket "a": change [[schedules]] there and reload`
	conflicts("configured", set("a", "c"), isConfigured)
	conflicts("configured for another bucket", set("b", "c"), isConfigured)
	_, err := op.As("ann").Schedule("c").Remove(ctx)
	conflicts("remove one of the configuration", err, isConfigured)
	must.OK(t, set("a", "made"))
	conflicts("made for another bucket", set("b", "made"), `schedule "made": is in bucket "a" (api) already: remove it first, or choose another name`)

	var log bytes.Buffer
	op = s.configured(slog.New(slog.NewTextHandler(&log, nil)), with(a, 0, "made"), with(b, 0, "made"))
	if text := log.String(); !strings.Contains(text, "not in force, as one of its name was made through the API") || !strings.Contains(text, "bucket=a schedule=made") {
		t.Errorf("logged is %s", text)
	}
	s.wants("the configuration brings the name", s.list(op), "a/made api ann configured too, b/made config")
	_, err = op.Schedule("made").Info(ctx)
	const twice = `schedule "made": is in bucket "a" (api) and in bucket "b" (config): remove the one that was made through the API, or give the one of the configuration another name`
	conflicts("two of a name", err, twice)
	_, err = op.As("ann").Schedule("made").Pause(ctx, "")
	conflicts("pause two of a name", err, twice)
	op = s.configured(nil, with(a, 0, "made"), b)
	must.Get(op.As("ann").Schedule("made").Remove(ctx))(t)
	s.wants("that of the API is removed", s.list(op), "a/made config")
}

// The settings are checked as those of a configuration, with the key in front, and by the worker of the bucket.
func TestSchedulesThatDoNotFit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	refuse := errors.New("url: is refused by the worker")
	op := must.Get(operator.New(operator.Config{
		Timeout: rig.Patience,
		Redis:   server.Client(), Buckets: []shaper.Bucket{rig.Bucket("b", 10)},
		CheckJob: func(bucket string, job *shaper.Job) error {
			if job.URL != "" {
				return refuse
			}
			return nil
		},
	}))(t)
	long := shaper.ScheduledJob{Payload: bytes.Repeat([]byte("x"), shaper.MaxScheduleBytes+1)}
	for _, c := range []struct {
		name, bucket string
		s            shaper.Schedule
		want         string
	}{
		{"UP", "b", hourly, `bucket "b": name: "UP": want lower-case letters`},
		{"n", "b", shaper.Schedule{}, `bucket "b": cron: "": has 0 fields`},
		{"n", "b", shaper.Schedule{Cron: "TZ=UTC"}, "name the time zone in timezone"},
		{"n", "b", shaper.Schedule{Cron: "0 0 30 2 *"}, "never fires"},
		{"n", "b", shaper.Schedule{Cron: "@every 500ms"}, "want 1s or more"},
		{"n", "b", shaper.Schedule{Cron: "@daily", Timezone: "Mars/Olympus"}, `timezone: "Mars/Olympus": is unknown`},
		{"n", "b", shaper.Schedule{Cron: "@daily", CatchUp: "some", Overlap: "drop"}, `catch_up: "some": want none, last or all; overlap: "drop": want queue or skip`},
		{"n", "b", shaper.Schedule{Cron: "@daily", Job: long}, "payload: has 65537 bytes"},
		{"n", "b", shaper.Schedule{Cron: "@daily", Job: shaper.ScheduledJob{URL: "/x"}}, "is refused by the worker"},
	} {
		_, err := op.As("ann").Schedule(c.name).Set(t.Context(), c.bucket, c.s)
		if _, ok := errors.AsType[*operator.InvalidChangeError](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+.200v: %v, want %s", c.s, err, c.want)
		}
	}
	if _, err := op.As("ann").Schedule("n").Set(t.Context(), "z", hourly); !errors.Is(err, shaper.ErrUnknownBucket) {
		t.Error(err)
	}
	must.Equal(t, server.Client().DBSize(t.Context()).Val(), 0, "keys were made")
}

// A bucket has at most 1000 schedules.
func TestTooManySchedules(t *testing.T) {
	t.Parallel()
	s := scheduled{t, redistest.Start(t)}
	names := make([]string, shaper.MaxSchedules)
	for i := range names {
		names[i] = fmt.Sprint("s", i)
	}
	op := s.configured(nil, with(rig.Bucket("b", 10), 0, names...))
	_, err := op.As("ann").Schedule("more").Set(t.Context(), "b", hourly)
	if err == nil || err.Error() != `schedule "more": bucket "b" has 1000 schedules already: remove some, or spread them over several buckets` {
		t.Error(err)
	}
	if all, err := op.Schedules(t.Context()); err != nil || len(all) != shaper.MaxSchedules {
		t.Error(len(all), err)
	}
}

// Schedules of a bucket that left the configuration are listed, and do not fire. One of the API can still be removed.
func TestOrphanedSchedules(t *testing.T) {
	t.Parallel()
	s := scheduled{t, redistest.Start(t)}
	ctx := t.Context()
	gone := rig.In(rig.PoolNamed("vendor"), with(rig.Bucket("gone", 10), 0, "c"))
	before := s.configured(nil, gone)
	must.Get(before.As("ann").Schedule("made").Set(ctx, "gone", hourly))(t)
	op := s.configured(nil, with(rig.Bucket("stays", 10), 0, "x"))
	s.wants("listed", s.list(op), "stays/x config, gone/c config orphaned, gone/made api ann orphaned")
	info, err := op.Schedule("c").Info(ctx)
	if err != nil || !info.Orphaned || info.Next != nil {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := op.Schedule("c").Runs(ctx); err != nil {
		t.Error(err)
	}
	control := op.As("ann")
	if _, _, err := control.Schedule("c").Fire(ctx); err == nil || err.Error() != `schedule "c": does not fire: bucket "gone" is not in the configuration` {
		t.Error(err)
	}
	if _, err := control.Schedule("c").Set(ctx, "stays", hourly); err == nil || !strings.Contains(err.Error(), `is in bucket "gone" (config) already`) {
		t.Error(err)
	}
	if changed, err := control.Schedule("c").Pause(ctx, "old"); err != nil || !changed {
		t.Error(changed, err)
	}
	if _, err := control.Schedule("made").Remove(ctx); err != nil {
		t.Error(err)
	}
	s.wants("removed", s.list(op), "stays/x config, gone/c config orphaned")
}

// Two processes at the same revision write other schedules at the same time: what is there then is that of one of them.
func TestSchedulesOfTwoConfigurations(t *testing.T) {
	t.Parallel()
	for range 20 {
		s := scheduled{t, redistest.Start(t)}
		done := make(chan error)
		for _, names := range [][]string{{"a1", "a2"}, {"b1"}} {
			go func() {
				client, err := rig.NewActors(producer.Config{Redis: s.server.Client(), Buckets: []shaper.Bucket{with(rig.Bucket("b", 10), 0, names...)}, Timeout: time.Minute})
				if err == nil {
					err = client.JoinPools(context.WithoutCancel(t.Context()))
				}
				done <- err
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		op := must.Get(operator.New(operator.Config{Redis: s.server.Client(), Buckets: []shaper.Bucket{rig.Bucket("b", 10)}, Timeout: time.Minute}))(t)
		if got := s.list(op); got != "b/a1 config, b/a2 config" && got != "b/b1 config" {
			t.Errorf("left are %s", got)
		}
	}
}

// The history tells the state of each fire's job when it is asked for.
func TestRunsTellOfTheirJobs(t *testing.T) {
	t.Parallel()
	s := scheduled{t, redistest.Start(t)}
	op := s.configured(nil, with(rig.Bucket("b", 10), 0, "c"))
	client, key := s.server.Client(), stored.Key("b", "")
	client.HSet(t.Context(), key+"schedules", "c:runs", `{"at":"3000000","now":"4000000","outcome":"skipped","job":"waits","reason":"overlap"}
{"at":"2000000","now":"2500000","outcome":"fired","job":"waits"}
{"at":"1000000","now":"1000000","outcome":"fired","job":"gone"}`)
	client.HSet(t.Context(), key+"body", "waits", "0 1 00000000000cn001 \n1")
	runs, err := op.Schedule("c").Runs(t.Context())
	if err != nil || len(runs) != 3 {
		t.Fatal(runs, err)
	}
	for i, want := range []struct {
		state shaper.State
		jobs  int
	}{{"", 0}, {shaper.StateQueued, 1}, {shaper.StateForgotten, 1}} {
		if runs[i].JobState != want.state || runs[i].Jobs != want.jobs {
			t.Errorf("run %d: %+v, want %+v", i, runs[i], want)
		}
	}
}
