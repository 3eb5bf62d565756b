package redisconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
)

type answerOf string

func (a answerOf) Error() string { return string(a) }
func (answerOf) RedisError()     {}

func TestUnavailableByText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"LOADING Redis is loading the dataset in memory": true, "BUSY Redis is busy running a script": true,
		"MISCONF Redis is configured to save RDB snapshots": true, "CLUSTERDOWN The cluster is down": true,
		"TRYAGAIN Multiple keys request during rehashing of slot": true, "MASTERDOWN Link with MASTER is down": true,
		"ERR max number of clients reached": true, "MOVED 3999 127.0.0.1:6381": true, "ASK 3999 127.0.0.1:6381": true,
		"ERR unknown command": false, "NOSCRIPT No matching script": false, "WRONGPASS invalid username-password pair": false,
		"NOPERM this user has no permissions": false, "BUSYKEY Target key name already exists.": false,
	} {
		if got := Unavailable(answerOf(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
	if Unavailable(nil) || Unavailable(errors.New("reply is a string")) || Unavailable(context.Canceled) || Unavailable(redis.Nil) {
		t.Error("that is not a matter of Redis")
	}
	if !Unavailable(context.DeadlineExceeded) || !Unavailable(redis.ErrPoolTimeout) {
		t.Error("too slow is unavailable")
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
