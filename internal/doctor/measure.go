package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/lua"
)

const (
	clockSamples   = 5
	reportedSkew   = time.Second
	latencySamples = 100
	latencyBudget  = 10 * time.Second
	latencyToWarn  = 50 * time.Millisecond // 4 of these are the longest horizon
)

// ExamineClock compares the clocks. The time of Redis lies between our times before and after the call, whichever direction was slow; of some samples
// the quickest is the most exact.
func ExamineClock(ctx context.Context, client redis.UniversalClient) Check {
	const name = "clock"
	var low, high time.Duration
	for i := range clockSamples {
		before := time.Now()
		theirs, err := client.Time(ctx).Result()
		if err != nil {
			return unknown(name, "TIME is refused: %s", opsview.Line(err.Error(), 120))
		}
		after := time.Now()
		if l, h := theirs.Sub(after), theirs.Sub(before); i == 0 || h-l < high-low {
			low, high = l, h
		}
	}
	text := fmt.Sprintf("the clock of Redis minus the clock of this machine is between %s and %s", opsview.Human(low), opsview.Human(high))
	if low > reportedSkew || high < -reportedSkew {
		return Warn(name, "run NTP on both machines", "%s: the pace and the timestamps of signatures go by Redis, so receivers refuse signatures "+
			"if the clock of Redis is wrong; a not_before and the times shown here are off by that", text)
	}
	return OK(name, "%s; the pace and the timestamps of signatures go by Redis", text)
}

// ExamineLatency measures round trips, one at a time.
func ExamineLatency(ctx context.Context, client redis.UniversalClient) Check {
	const name = "latency"
	var took []time.Duration
	for start := time.Now(); len(took) < latencySamples && time.Since(start) < latencyBudget; {
		before := time.Now()
		if err := client.Ping(ctx).Err(); err != nil {
			return Bad(name, "look at the network and at the load of Redis", "PING failed after %s: %s", opsview.Count(len(took), "answer"), opsview.Line(err.Error(), 120))
		}
		took = append(took, time.Since(before))
	}
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[len(took)*99/100]
	text := fmt.Sprintf("a round trip takes %s, and 1 in 100 %s or more", opsview.Human(p50), opsview.Human(p99))
	if p99 > latencyToWarn {
		return Warn(name, "bring the dispatchers nearer to Redis",
			"%s: above %s a busy bucket may stay below its rate, as slots are claimed at most 200ms ahead", text, latencyToWarn)
	}
	return OK(name, "%s", text)
}

// ExamineScripts checks that the server runs our scripts, as functions or by EVALSHA.
func ExamineScripts(ctx context.Context, client redis.UniversalClient, functions bool) Check {
	const name = "scripts"
	unused := "redis.functions is false"
	if functions {
		err := lua.CheckLibrary(ctx, client)
		if errors.Is(err, lua.ErrLibraryChanged) {
			return Bad(name, "set redis.functions = false in all programs, and remove the rights to load functions from other users of this Redis",
				"%s: its code runs with the rights of the user of redis.url", opsview.Line(err.Error(), 200))
		}
		refused := client.FunctionLoad(ctx, lua.Library()).Err()
		switch there := refused == nil || strings.Contains(refused.Error(), "already exists"); {
		case there && err == nil:
			return OK(name, "run as functions of Redis")
		case there:
			return Warn(name, "give the user of redis.url the right function|list, or set redis.functions = false where other users of this Redis may load functions",
				"run as functions of Redis. That no other user has changed these is unknown: %s", opsview.Line(err.Error(), 120))
		}
		unused = opsview.Line(refused.Error(), 60)
	}
	return examineEval(ctx, client, unused)
}

// examineEval sees that the server runs scripts, and counts those that it has.
func examineEval(ctx context.Context, client redis.UniversalClient, unused string) Check {
	const name = "scripts"
	if err := client.Eval(ctx, "return 1", nil).Err(); err != nil {
		return Bad(name, "allow FCALL and FUNCTION LOAD, or EVAL and EVALSHA, to the user of redis.url",
			"Redis refuses to run them: %s", opsview.Line(err.Error(), 120))
	}
	var digests []string
	for _, script := range lua.All() {
		digests = append(digests, script.SHA())
	}
	found, err := client.ScriptExists(ctx, digests...).Result()
	if err != nil {
		return OK(name, "run, not as functions; how many are loaded is unknown, because SCRIPT is refused: %s", opsview.Line(err.Error(), 120))
	}
	loaded := 0
	for _, there := range found {
		if there {
			loaded++
		}
	}
	return OK(name, "run, not as functions, which would cost this Redis less (%s); %d of %d are loaded, the others will be on first use",
		unused, loaded, len(digests))
}
