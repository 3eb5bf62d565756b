package redisconn

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/redis/go-redis/v9"
)

// Unavailable reports whether err means that Redis is unavailable now and the same call
// may work later: Redis is unreachable, too slow, loading, out of memory, without its
// replicas, failing over, or moving a slot. It is false for nil and for errors that
// stay, such as a wrong password.
func Unavailable(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, ErrBreakerOpen) {
		return true
	}
	for _, prefix := range []string{"LOADING", "BUSY ", "READONLY", "OOM", "NOREPLICAS", "MISCONF", "CLUSTERDOWN",
		"TRYAGAIN", "MOVED ", "ASK ", "MASTERDOWN", "max number of clients"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	var answer redis.Error
	if errors.As(err, &answer) {
		return false
	}
	var netErr net.Error
	return errors.As(err, &netErr) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// ReplyLost reports whether a command may have run although err came back: the connection
// failed, and Redis gave no answer. It is false for [ErrBreakerOpen].
func ReplyLost(err error) bool {
	var answer redis.Error
	return !errors.As(err, &answer) && Unavailable(err) && !errors.Is(err, ErrBreakerOpen)
}
