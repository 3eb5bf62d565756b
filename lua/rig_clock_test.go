package lua_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// realClock is what the scripts of a real server take for its clock: it stands
// still until a test moves it, as that of a miniredis does. What a script says
// then does not depend on how fast the machine is.
//
// It lies in another database than the data, in the form of a reply of TIME, and
// the hook has the server run copies of the scripts that read it.
type realClock struct {
	c  *redis.Client // of its database
	at int64
}

// clockDB is the database of the clock. Tests look at all keys of database 0.
const clockDB = 1

// clocked has the scripts that client runs take their time from a clock, which is set to epoch.
func clocked(ctx context.Context, client *redis.Client) (*realClock, error) {
	options := *client.Options()
	options.DB, options.PoolSize = clockDB, 1
	k := &realClock{c: redis.NewClient(&options)}
	client.AddHook(clockHook{})
	return k, k.set(ctx, epoch)
}

func (k *realClock) set(ctx context.Context, micros int64) error {
	k.at = micros
	pipe := k.c.TxPipeline()
	pipe.Del(ctx, "clock")
	pipe.RPush(ctx, "clock", micros/second, micros%second)
	_, err := pipe.Exec(ctx)
	return err
}

// ttl is how long a key is kept from now on, by the clock of the test.
func (r *rig) ttl(key string) time.Duration {
	r.t.Helper()
	if r.clock == nil {
		ttl, err := r.c.PTTL(r.ctx, key).Result()
		r.ok(err)
		return ttl
	}
	until, err := r.clock.c.HGet(r.ctx, "until", key).Int64()
	if !errors.Is(err, redis.Nil) {
		r.ok(err)
	}
	return time.Duration(until-r.clock.at) * time.Microsecond
}

// The copies of scripts, by the digest of their own text.
var copies sync.Map

// beforeCopies is what the copies begin with. A key is kept for ten days more than it
// should be: the server forgets it by its own clock, and that of the test stands still.
const beforeCopies = `
local function test_clock()
  redis.call('SELECT', 1)
  local t = redis.call('LRANGE', 'clock', 0, 1)
  redis.call('SELECT', 0)
  return t
end
local function test_until(key, ms)
  local t = test_clock()
  redis.call('SELECT', 1)
  redis.call('HSET', 'until', key, string.format('%.0f', t[1] * 1000000 + t[2] + ms * 1000))
  redis.call('SELECT', 0)
  return string.format('%.0f', ms + 864000000)
end
local function test_expire(key, ms) return redis.call('PEXPIRE', key, test_until(key, ms)) end
local function test_set(key, text, ms) return redis.call('SET', key, text, 'PX', test_until(key, ms)) end
`

var ownClock = strings.NewReplacer(
	"redis.call('TIME')", "test_clock()",
	"redis.call('PEXPIRE', ", "test_expire(",
	"redis.call('SET', key, text, 'PX', ", "test_set(key, text, ",
)

// withClock is the tests' copy of a script.
func withClock(text string) string {
	// Errors tell the lines of the script.
	return strings.ReplaceAll(beforeCopies, "\n", " ") + ownClock.Replace(text)
}

// clockPrefix begins the names of copies of functions.
const clockPrefix = "clock_"

// libraryWithClock is the tests' copy of the library.
func libraryWithClock(text string) string {
	head, rest, _ := strings.Cut(text, "\n")
	return strings.ReplaceAll(head, "=", "="+clockPrefix) + "\n" + strings.ReplaceAll(withClock(rest), "register_function('", "register_function('"+clockPrefix)
}

func digest(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// clockHook sends the copies of scripts instead of the scripts.
type clockHook struct{}

func (clockHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (clockHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		replace(cmd)
		return next(ctx, cmd)
	}
}

func (clockHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			replace(cmd)
		}
		return next(ctx, cmds)
	}
}

func replace(cmd redis.Cmder) {
	args := cmd.Args()
	if len(args) < 2 {
		return
	}
	text, ok := args[1].(string)
	switch {
	case !ok:
	case args[0] == "function":
		args[2] = libraryWithClock(args[2].(string))
	case args[0] == "fcall":
		args[1] = clockPrefix + strings.TrimPrefix(text, clockPrefix)
	case args[0] == "eval":
		own := withClock(text)
		copies.Store(digest(text), digest(own))
		args[1] = own
	case args[0] == "evalsha":
		if sha, known := copies.Load(text); known {
			args[1] = sha
		}
	}
}
