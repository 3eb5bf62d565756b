package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
)

type answerOf string

func (a answerOf) Error() string { return string(a) }
func (answerOf) RedisError()     {}

func TestFailureOfResponses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Failure{
		"LOADING Redis is loading the dataset in memory": Refused, "BUSY Redis is busy running a script": Refused,
		"MISCONF Redis is configured to save RDB snapshots": Refused, "CLUSTERDOWN The cluster is down": Refused,
		"TRYAGAIN Multiple keys request during rehashing of slot": Refused, "MASTERDOWN Link with MASTER is down": Refused,
		"ERR max number of clients reached": Refused, "MOVED 3999 127.0.0.1:6381": Refused, "ASK 3999 127.0.0.1:6381": Refused,
		"READONLY You can't write against a read only replica. script: 1, on @user_script:2.": Refused, "ERR unknown command": Refused,
		"ERR Error running script (call to f_1): Script killed by user with SCRIPT KILL... script: 1, on @user_script:2.": Refused,
		"SOMETHING that a later Redis says":                                                     Refused,
		"OOM command not allowed when used memory > 'maxmemory'. script: 1, on @user_script:1.": Full,
		"WRONGPASS invalid username-password pair":                                              Forbidden, "NOAUTH Authentication required.": Forbidden,
		"NOPERM this user has no permissions": Forbidden, "ERR Protocol error: unauthenticated multibulk length": Forbidden, "ERR AUTH <password> called without any password configured for the default user.": Forbidden,
		"ERR The user executing the script can't run this command or subcommand script: 1, on @user_script:2.":                       Forbidden,
		"ERR ACL failure in script: User x has no permissions to run the 'hset' command script: tundish_sweep, on @user_function:9.": Forbidden,

		"NOSCRIPT No matching script": NoFailure, "WRONGTYPE Operation against a key holding the wrong kind of value": NoFailure,
		"CROSSSLOT Keys in request don't hash to the same slot": NoFailure, "redis: nil": NoFailure,
		"ERR user_script:12: attempt to compare nil with number script: 1, on @user_script:12.":                           NoFailure,
		"ERR Lua redis lib command arguments must be strings or integers script: tundish_sweep, on @user_function:12029.": NoFailure,
		"ERR Error running script (call to f_1): @user_script:2277: attempt to perform arithmetic on a nil value":         NoFailure,
		"ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'":                        NoFailure,
	} {
		if got := FailureOf(fmt.Errorf("script sweep: %w", answerOf(text))); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestFailureOfErrors(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errors.New("reply is a string"), context.Canceled, redis.Nil} {
		if Unavailable(err) {
			t.Errorf("%v is no failure of Redis", err)
		}
	}
	for _, err := range []error{
		context.DeadlineExceeded, redis.ErrPoolTimeout, &tls.CertificateVerificationError{Err: errors.New("expired")}, tls.AlertError(42),
		fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", redis.Nil),
	} {
		if got := FailureOf(err); got != Unreachable {
			t.Errorf("%v: %v, want unreachable", err, got)
		}
	}
}

func TestReplyLost(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		context.DeadlineExceeded: true, io.EOF: true, redis.ErrPoolTimeout: true,
		ErrBreakerOpen: false, answerOf("LOADING"): false, answerOf("OOM"): false, context.Canceled: false, redis.Nil: false,
	} {
		if got := ReplyLost(fmt.Errorf("script: %w", err)); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}
