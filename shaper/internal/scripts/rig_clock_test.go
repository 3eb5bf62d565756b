package scripts_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/lua"
)

// realClock is what the scripts of a real server take for its clock: it stands
// still until a test moves it, as that of a miniredis does. What a script says
// then does not depend on how fast the machine is.
//
// The hook has the server run copies of the scripts, which get the time as one argument more, the last.
type realClock struct {
	c  *redis.Client // of a database where the ends of keys are noted
	at atomic.Int64
}

// clockDB is the database of these ends. Tests look at all keys of database 0.
const clockDB = 1

// clocked has the scripts that client runs take their time from a clock, which is set to epoch.
func clocked(client *redis.Client) *realClock {
	options := *client.Options()
	options.DB, options.PoolSize = clockDB, 1
	k := &realClock{c: redis.NewClient(&options)}
	k.at.Store(epoch)
	client.AddHook(clockHook{k})
	return k
}

// ttl is how long a key is kept from now on, by the clock of the test.
func (r *rig) ttl(key string) time.Duration {
	r.t.Helper()
	if r.clock == nil {
		ttl := must.Get(r.c.PTTL(r.ctx, key).Result())(r.t)
		return ttl
	}
	until, err := r.clock.c.HGet(r.ctx, "until", key).Int64()
	if !errors.Is(err, redis.Nil) {
		r.ok(err)
	}
	return time.Duration(until-r.clock.at.Load()) * time.Microsecond
}

// The copies of scripts, by the digest of their own text.
var copies sync.Map

// beforeCopies is what the copies begin with. A key is kept for ten days more than it
// should be: the server forgets it by its own clock, and that of the test stands still.
const beforeCopies = `
local test_now
local function test_clock() return { math.floor(test_now / 1000000), test_now % 1000000 } end
local function test_until(key, ms)
  redis.call('SELECT', 1)
  redis.call('HSET', 'until', key, string.format('%.0f', test_now + ms * 1000))
  redis.call('SELECT', 0)
  return string.format('%.0f', ms + 864000000)
end
local function test_expire(key, ms) return redis.call('PEXPIRE', key, test_until(key, ms)) end
local function test_set(key, text, ms) return redis.call('SET', key, text, 'PX', test_until(key, ms)) end
`

// takeTime takes the last argument away, before the script sees them.
const takeTime = " test_now = tonumber(table.remove(ARGV)) "

var ownClock = strings.NewReplacer(
	"redis.call('TIME')", "test_clock()",
	"redis.call('PEXPIRE', ", "test_expire(",
	"redis.call('SET', key, text, 'PX', ", "test_set(key, text, ",
)

// withClock is the tests' copy of a script. Errors tell the lines of the script.
func withClock(text string) string {
	return strings.ReplaceAll(beforeCopies, "\n", " ") + takeTime + ownClock.Replace(text)
}

// theLibrary is what a program loads, and the tests' copy of it.
var theLibrary = sync.OnceValues(func() (text, withClock string) { return lua.Library(), libraryWithClock(lua.Library()) })

// clockPrefix begins the names of copies of functions.
const clockPrefix = "clock_"

// libraryWithClock is the tests' copy of the library.
func libraryWithClock(text string) string {
	head, rest, _ := strings.Cut(text, "\n")
	rest = strings.ReplaceAll(ownClock.Replace(rest), "KEYS, ARGV = keys, args\n", "KEYS, ARGV = keys, args"+takeTime+"\n")
	return strings.ReplaceAll(head, "=", "="+clockPrefix) + "\n" + strings.ReplaceAll(beforeCopies, "\n", " ") +
		strings.ReplaceAll(rest, "register_function('", "register_function('"+clockPrefix)
}

func digest(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// clockHook sends the copies of scripts instead of the scripts.
type clockHook struct{ *realClock }

func (clockHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h clockHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		sent := h.instead(ctx, cmd)
		err := next(ctx, sent)
		pass(cmd, sent)
		return err
	}
}

func (h clockHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		sent := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			sent[i] = h.instead(ctx, cmd)
		}
		err := next(ctx, sent)
		for i, cmd := range cmds {
			pass(cmd, sent[i])
		}
		return err
	}
}

// pass gives a command the answer of the one that was sent instead.
func pass(cmd, sent redis.Cmder) {
	own, isScript := cmd.(interface{ SetVal(val any) })
	if reply, ok := sent.(*redis.Cmd); ok && isScript && cmd != sent {
		own.SetVal(reply.Val())
		cmd.SetErr(reply.Err())
	}
}

// instead is the command that is sent instead of one that runs a script; of others it is the same.
func (h clockHook) instead(ctx context.Context, cmd redis.Cmder) redis.Cmder {
	args := cmd.Args()
	if len(args) < 3 {
		return cmd
	}
	text, ok := args[1].(string)
	if !ok {
		return cmd
	}
	switch args[0] {
	case "function":
		if text, withClock := theLibrary(); args[2] == text {
			args[2] = withClock
		}
		return cmd
	case "fcall":
		text = clockPrefix + text
	case "eval":
		own := withClock(text)
		copies.Store(digest(text), digest(own))
		text = own
	case "evalsha":
		if sha, known := copies.Load(text); known {
			text = sha.(string)
		}
	default:
		return cmd
	}
	args = append(slices.Clone(args), h.at.Load())
	args[1] = text
	return redis.NewCmd(ctx, args...)
}
