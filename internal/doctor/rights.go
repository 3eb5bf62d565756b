package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/opsview"
)

// The commands that Tundish sends, by the type of their arguments. deploy/redis/users.acl has the same ones; a test compares them. ExamineScripts checks
// the rights to run scripts and functions, and the other checks fail without INFO.
const (
	keyCommands = "del exists get hdel hexists hget hgetall hincrby hkeys hlen hmget hrandfield hscan hset hsetnx hstrlen hvals lindex llen lmove lpop lpos lpush " +
		"lrange lrem lset ltrim pexpire pttl rename rpop rpush set type unlink zadd zcard zcount zlexcount zmscore zrange zrangebyscore zrem zremrangebyrank zremrangebyscore " +
		"zrevrange zscore"
	channelCommands = "publish subscribe"
	plainCommands   = "ping select time unsubscribe"
	clusterCommands = "asking cluster|info cluster|slots"
	scriptCommands  = "eval evalsha fcall function|list function|load info script|exists"
)

// Commands returns the commands that the user of redis.url needs, in the words of an ACL, such as "cluster|info".
func Commands() []string {
	return strings.Fields(strings.Join([]string{keyCommands, channelCommands, plainCommands, clusterCommands, scriptCommands}, " "))
}

// rightsScript returns the commands in ARGV that the user may not send. It sends none of them. Each of their arguments is the key: some commands take
// all arguments as keys or channels.
const rightsScript = `
local missing = {}
for i = 1, #ARGV do
  local words = { string.match(ARGV[i], '^([^|]+)|?(.*)$') }
  if words[2] == '' then words[2] = KEYS[1] end
  words[3], words[4], words[5] = KEYS[1], KEYS[1], KEYS[1]
  if not redis.acl_check_cmd(unpack(words)) then missing[#missing + 1] = ARGV[i] end
end
return missing`

// ownKey is the key, and the channel, for which the rights are checked: it begins as all of ours do, and is never written.
const ownKey = "tundish:{doctor}:rights"

// rights are the commands that the user may not send, or why they are not known.
type rights struct {
	missing []string
	err     error
}

func askRights(ctx context.Context, client redis.UniversalClient, inCluster bool) rights {
	commands := keyCommands + " " + channelCommands + " " + plainCommands
	if inCluster {
		commands += " " + clusterCommands
	}
	var args []any
	for command := range strings.FieldsSeq(commands) {
		args = append(args, command)
	}
	found, err := client.Eval(ctx, rightsScript, []string{ownKey}, args...).StringSlice()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return rights{found, err}
}

func (s *server) rightsOfUser() Check {
	const name = "rights"
	switch missing := s.rights.missing; {
	case s.rights.err != nil && strings.Contains(s.rights.err.Error(), "can't"), s.rights.err != nil && strings.HasPrefix(s.rights.err.Error(), "NOPERM"):
		return Warn(name, "give the user of redis.url the keys and channels of deploy/redis/users.acl: ACL SETUSER <user> ~tundish:* &tundish:* +eval",
			"Redis refuses a script on the key %s: %s", ownKey, opsview.Line(s.rights.err.Error(), 120))
	case s.rights.err != nil:
		return OK(name, "are not known here: %s", opsview.Line(s.rights.err.Error(), 80))
	case len(missing) > 0:
		return Bad(name, fmt.Sprintf("ACL SETUSER <user> ~tundish:* &tundish:* +%s, as in deploy/redis/users.acl", strings.Join(missing, " +")),
			"the user of redis.url may not use %s on keys and channels that begin with tundish:, so scripts fail", opsview.Line(strings.Join(missing, ", "), 300))
	}
	return OK(name, "the user may send all commands that are used, on keys and channels that begin with tundish:")
}
