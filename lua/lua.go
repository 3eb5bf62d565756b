package lua

import (
	"context"
	_ "embed" // the scripts' text
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed dedupe.lua
var dedupeText string

//go:embed dlq.lua
var dlqText string

//go:embed limits.lua
var limitsText string

//go:embed limit_keys.lua
var limitKeysText string

//go:embed usual.lua
var usualText string

//go:embed flow.lua
var flowText string

//go:embed group.lua
var groupText string

//go:embed idle.lua
var idleText string

//go:embed sender.lua
var senderText string

//go:embed quota.lua
var quotaText string

//go:embed away.lua
var awayText string

//go:embed pins.lua
var pinsText string

//go:embed pool.lua
var poolText string

//go:embed share.lua
var shareText string

//go:embed turns.lua
var turnsText string

//go:embed pending.lua
var pendingText string

//go:embed places.lua
var placesText string

//go:embed allow.lua
var allowText string

//go:embed ask.lua
var askText string

//go:embed enqueue.lua
var enqueueText string

//go:embed claim.lua
var claimText string

//go:embed reserve.lua
var reserveText string

//go:embed reserve_flows.lua
var reserveFlowsText string

//go:embed settle.lua
var settleText string

//go:embed extend.lua
var extendText string

//go:embed sweep.lua
var sweepText string

//go:embed take_back.lua
var takeBackText string

//go:embed trim_dead.lua
var trimDeadText string

//go:embed off_calendar.lua
var offCalendarText string

//go:embed flows_of.lua
var flowsOfText string

//go:embed cancel.lua
var cancelText string

//go:embed redrive.lua
var redriveText string

//go:embed configure.lua
var configureText string

//go:embed control.lua
var controlText string

//go:embed control_flow.lua
var controlFlowText string

//go:embed purge.lua
var purgeText string

//go:embed pin.lua
var pinText string

//go:embed instances.lua
var instancesText string

//go:embed move.lua
var moveText string

//go:embed move_read.lua
var moveReadText string

//go:embed move_write.lua
var moveWriteText string

//go:embed move_drop.lua
var moveDropText string

//go:embed inspect_job.lua
var inspectJobText string

//go:embed inspect_bucket.lua
var inspectBucketText string

//go:embed inspect_pool.lua
var inspectPoolText string

// The scripts. Each file's header says what it does.
var (
	Enqueue       = newScript("enqueue", dlqText+limitsText+limitKeysText+usualText+flowText+groupText+idleText+placesText+enqueueText)
	Claim         = newScript("claim", awayText+dlqText+flowText+groupText+idleText+pendingText+poolText+quotaText+senderText+shareText+turnsText+claimText)
	Reserve       = newScript("reserve", awayText+poolText+quotaText+senderText+shareText+reserveText)
	ReserveFlows  = newScript("reserve_flows", reserveFlowsText)
	Settle        = newScript("settle", dedupeText+dlqText+flowText+groupText+poolText+settleText)
	Extend        = newScript("extend", extendText)
	Sweep         = newScript("sweep", dlqText+flowText+groupText+idleText+poolText+sweepText)
	TakeBack      = newScript("take_back", dlqText+flowText+groupText+poolText+takeBackText)
	TrimDead      = newScript("trim_dead", dedupeText+dlqText+trimDeadText)
	OffCalendar   = newScript("off_calendar", offCalendarText)
	FlowsOf       = newScript("flows_of", flowText+flowsOfText)
	Cancel        = newScript("cancel", dedupeText+dlqText+flowText+groupText+cancelText)
	Redrive       = newScript("redrive", dlqText+flowText+groupText+redriveText)
	Configure     = newScript("configure", configureText)
	Control       = newScript("control", controlText)
	ControlFlow   = newScript("control_flow", flowText+groupText+controlFlowText)
	Pin           = newScript("pin", pinText)
	Purge         = newScript("purge", dedupeText+flowText+groupText+purgeText)
	Move          = newScript("move", moveText)
	MoveRead      = newScript("move_read", moveReadText)
	MoveWrite     = newScript("move_write", moveWriteText)
	MoveDrop      = newScript("move_drop", moveDropText)
	InspectJob    = newScript("inspect_job", flowText+groupText+poolText+inspectJobText)
	InspectBucket = newScript("inspect_bucket", dlqText+flowText+pinsText+poolText+inspectBucketText)
	InspectPool   = newScript("inspect_pool", pinsText+poolText+inspectPoolText)
	Instances     = newScript("instances", instancesText)
)

// All lists the scripts in alphabetical order. Of allow and ask, which run within
// a rule, there is the text alone.
func All() []*Script {
	return []*Script{
		newScript("allow", limitKeysText+allowText), newScript("ask", limitKeysText+askText), Cancel, Claim, Configure, Control, ControlFlow, Enqueue, Extend, FlowsOf, InspectBucket, InspectJob,
		InspectPool, Instances, Move, MoveDrop, MoveRead, MoveWrite, OffCalendar, Pin, Purge, Redrive, Reserve, ReserveFlows, Settle, Sweep, TakeBack, TrimDead,
	}
}

// Script is the text of a script and its digest.
type Script struct {
	name      string
	text, sha any // strings: as arguments of a command they are not made objects each time
}

func newScript(name, text string) *Script {
	return &Script{name: name, text: text, sha: redis.NewScript(text).Hash()}
}

// Name is the file's name without its ending.
func (s *Script) Name() string { return s.name }

// SHA is the digest by which Redis knows the script.
func (s *Script) SHA() string { return s.sha.(string) }

// Client is what running a script takes of a go-redis client.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// Observer is told of each run of a script. A nil Observer is not.
type Observer func(script string, took time.Duration, err error)

// Run runs the script in one round trip, or in two when the server does not
// know it yet (NOSCRIPT), and returns its reply, which is always an array or
// an integer. The command is never sent again by the client library: whoever
// calls decides, because only they know what a lost reply means.
func (s *Script) Run(ctx context.Context, client Client, observe Observer, keys []string, args ...any) (any, error) {
	start := time.Now()
	cmd := s.command(ctx, "evalsha", s.sha, keys, args)
	err := client.Process(ctx, cmd)
	if notLoaded(err) {
		cmd = s.command(ctx, "eval", s.text, keys, args)
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

// notLoaded reports whether the server does not know a script. Most often there is
// no error, and looking for its kind would make an object.
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

// NoRetry tells go-redis, also its cluster client.
func (*once) NoRetry() bool { return true }
