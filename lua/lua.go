package lua

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The scripts. Each file's header describes the script.
var (
	Allow            = newScript("allow")
	Enqueue          = newScript("enqueue")
	Claim            = newScript("claim")
	Reserve          = newScript("reserve")
	ReserveFlows     = newScript("reserve_flows")
	Settle           = newScript("settle")
	Extend           = newScript("extend")
	Start            = newScript("start")
	Sweep            = newScript("sweep")
	TakeBack         = newScript("take_back")
	TrimDead         = newScript("trim_dead")
	TrimResults      = newScript("trim_results")
	DropResults      = newScript("drop_results")
	EmptyDisabled    = newScript("empty_disabled")
	Expire           = newScript("expire")
	Sift             = newScript("sift")
	MoveEvents       = newScript("move_events")
	MoveCallbacks    = newScript("move_callbacks")
	OutsideTurnQueue = newScript("outside_turn_queue")
	OldestWaiting    = newScript("oldest_waiting")
	FlowsOf          = newScript("flows_of")
	Ended            = newScript("ended")
	Cancel           = newScript("cancel")
	Redrive          = newScript("redrive")
	RetryNow         = newScript("retry_now")
	Configure        = newScript("configure")
	Control          = newScript("control")
	ControlFlow      = newScript("control_flow")
	Override         = newScript("override")
	Purge            = newScript("purge")
	Relocate         = newScript("relocate")
	Assign           = newScript("assign")
	InspectJob       = newScript("inspect_job")
	InspectJobs      = newScript("inspect_jobs")
	InspectResult    = newScript("inspect_result")

	InspectResults = newScript("inspect_results")
	InspectBucket  = newScript("inspect_bucket")
	InspectBudgets = newScript("inspect_budgets")
	InspectPool    = newScript("inspect_pool")
	InspectWaiting = newScript("inspect_waiting")
	Instances      = newScript("instances")

	DefineSchedules = newScript("define_schedules")
	DueSchedules    = newScript("due_schedules")
	AdvanceSchedule = newScript("advance_schedule")
	ControlSchedule = newScript("control_schedule")
	ScheduleRuns    = newScript("schedule_runs")

	RenewTimetable = newScript("renew_timetable")
	CloseWindow    = newScript("close_window")
	ControlDrain   = newScript("control_drain")

	NoteDifferences = newScript("note_differences")
	NoteLate        = newScript("note_late")

	DisabledDeaths = newScript("disabled_deaths")

	StoreLearnedEstimates = newScript("store_learned_estimates")

	OpenBundle = newScript("open_bundle")

	Heartbeat       = newScript("heartbeat")
	RecordOperation = newScript("record_operation")
	BeginSession    = newScript("begin_session")

	Probe = newScript("probe")
)

// All lists the scripts in alphabetical order.
func All() []*Script {
	return []*Script{
		AdvanceSchedule, Allow, Assign,
		BeginSession,
		Cancel, Claim, CloseWindow, Configure, Control, ControlDrain, ControlFlow, ControlSchedule,
		DefineSchedules, DisabledDeaths, DropResults, DueSchedules,
		EmptyDisabled, Ended, Enqueue, Expire, Extend,
		FlowsOf,
		Heartbeat,
		InspectBucket, InspectBudgets, InspectJob, InspectJobs, InspectPool, InspectResult, InspectResults, InspectWaiting, Instances,
		MoveCallbacks, MoveEvents,
		NoteDifferences, NoteLate,
		OldestWaiting, OpenBundle, OutsideTurnQueue, Override,
		Probe, Purge,
		RecordOperation, Redrive, Relocate, RenewTimetable, Reserve, ReserveFlows, RetryNow,
		ScheduleRuns, Settle, Sift, Start, StoreLearnedEstimates, Sweep,
		TakeBack, TrimDead, TrimResults,
	}
}

// byDigest maps digests to scripts.
var byDigest = sync.OnceValue(func() map[string]*Script {
	scripts := map[string]*Script{}
	for _, script := range All() {
		scripts[script.SHA()] = script
	}
	return scripts
})

// Script is the text of a script and its digest. Both are made at the first use: a command that runs no script starts without them.
type Script struct {
	name string
	made func() made
	keys func() []string // the fixed ones
}

// made is what is sent for a script: strings, which as arguments of a command are not made objects each time.
type made struct{ text, sha any }

// newScript returns the script of a file. The text is part of the program, and a test assembles all scripts. So its first use panics on faults that
// only a wrong program can have.
func newScript(name string) *Script {
	return &Script{
		name: name,
		made: sync.OnceValue(func() made {
			text, err := assemble(files, name)
			if err != nil {
				panic(err)
			}
			return made{text, digest(text)}
		}),
		keys: sync.OnceValue(func() []string { return fixedKeys(files, name) }),
	}
}

func digest(text string) string { return redis.NewScript(text).Hash() }

// Name is the file's name without its ending.
func (s *Script) Name() string { return s.name }

// Text returns the text that is sent to Redis: the file with the pieces of lib that it includes.
func (s *Script) Text() string { return s.made().text.(string) }

// SHA returns the digest by which Redis knows the script.
func (s *Script) SHA() string { return s.made().sha.(string) }

// Client is the part of a go-redis client that runs scripts.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// Observer is called after each run of a script. A nil Observer is ignored.
type Observer func(script string, took time.Duration, err error)

// Run runs the script and returns its reply, an array or an integer. It takes one round trip, or two if the server does
// not know the script yet (NOSCRIPT). The client library never sends the command again: only the caller knows what a lost
// reply means.
func (s *Script) Run(ctx context.Context, client Client, observe Observer, keys []string, args ...any) (any, error) {
	start := time.Now()
	cmd := s.command(ctx, "evalsha", s.made().sha, keys, args)
	err := client.Process(ctx, cmd)
	if notLoaded(err) {
		cmd = s.command(ctx, "eval", s.made().text, keys, args)
		err = client.Process(ctx, cmd)
	}
	if observe != nil {
		observe(s.name, time.Since(start), err)
	}
	if err != nil {
		return nil, fmt.Errorf("script %s: %w", s.name, err)
	}
	return cmd.Val(), nil
}

// notLoaded reports whether the server does not know a script. Usually there is no error, and a check of its type would allocate.
func notLoaded(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

func (s *Script) command(ctx context.Context, verb string, script any, keys []string, args []any) *once {
	return &once{redis.NewCmd(ctx, words(verb, script, keys, args)...)}
}

func words(verb string, script any, keys []string, args []any) []any {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, script, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	return append(all, args...)
}

// once is a command that go-redis does not send again by itself. Its default
// is to resend after a lost reply, which pops twice (measured: one lost reply,
// two pops, no error seen).
type once struct{ *redis.Cmd }

// NoRetry stops retries of go-redis, also of its cluster client.
func (*once) NoRetry() bool { return true }

// cluster is the method that only a client of a cluster has.
type cluster interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}
