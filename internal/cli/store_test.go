package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/redisconn"
)

type answerOfRedis string

func (a answerOfRedis) Error() string { return string(a) }
func (answerOfRedis) RedisError()     {}

// Only where nobody took the connection is Redis asked to be started.
func TestWhatRedisDid(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, test := range []struct {
		err  error
		says string
	}{
		{dial, "Redis at redis://127.0.0.1:6379/0 does not answer: is it running"},
		{context.DeadlineExceeded, "gave no answer in time"},
		{&net.OpError{Op: "read", Net: "tcp", Err: context.DeadlineExceeded}, "gave no answer in time"},
		{answerOfRedis("OOM command not allowed"), "answers, and refuses the command for now"},
		{answerOfRedis("LOADING Redis is loading the dataset in memory"), "answers, and refuses the command for now"},
		{redis.ErrPoolTimeout, "raise redis.pool_size"},
		{redisconn.ErrBreakerOpen, "failed the last calls"},
		{io.EOF, "broke the connection"},
	} {
		s := &station{config: &config.Config{}}
		s.config.Redis.URL = "redis://127.0.0.1:6379/0"
		err := s.explain(fmt.Errorf("shaper: look at buckets: %w", test.err))
		if got := err.Error(); !strings.Contains(got, test.says) || strings.Contains(got, "is it running") != errors.Is(test.err, dial) || codeOf(err) != exitUnreachable || !errors.Is(err, test.err) {
			t.Errorf("%v: %q, exit %d; want %q", test.err, got, codeOf(err), test.says)
		}
	}
}
