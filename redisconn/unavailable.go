package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Failure is the kind of failure of Redis, read from the error of a call.
type Failure int

// The failures of Redis.
const (
	NoFailure   Failure = iota // no error, or an error that Redis did not cause
	Unreachable                // no connection, or no response in time
	Refused                    // an error response that may pass: loading, read-only, failing over, moving a slot, too many clients
	Full                       // Redis is out of memory and stored nothing
	Forbidden                  // Redis refuses the user: a wrong password, none, or a user without the right
)

func (f Failure) String() string {
	return [...]string{"none", "unreachable", "refused", "full", "forbidden"}[f]
}

// Failures returns every failure but [NoFailure].
func Failures() []Failure { return []Failure{Unreachable, Refused, Full, Forbidden} }

// Description describes the failure for people, such as "Redis is out of memory".
func (f Failure) Description() string {
	return [...]string{
		"Redis works", "Redis is not reachable or too slow", "Redis refuses the command for now", "Redis is out of memory", "Redis refuses the user or the password",
	}[f]
}

// errPassword marks the error of a password's file that cannot be read: nothing was sent.
var errPassword = errors.New("redisconn: cannot read the password of Redis")

// FailureOf returns the failure that an error means. Every error response of Redis is a failure of Redis, except those that
// only this program's own scripts and keys can cause.
func FailureOf(err error) Failure {
	if err == nil {
		return NoFailure
	}
	if answer, ok := errors.AsType[redis.Error](err); ok {
		if failure := failureOfResponse(answer.Error()); failure != NoFailure || !isOfSentinels(err) {
			return failure
		}
		return Unreachable
	}
	if _, ok := errors.AsType[net.Error](err); ok || isTLS(err) || isOfSentinels(err) {
		return Unreachable
	}
	for _, one := range []error{
		ErrBreakerOpen, errPassword, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, redis.ErrPoolTimeout, redis.ErrPoolExhausted,
	} {
		if errors.Is(err, one) {
			return Unreachable
		}
	}
	return NoFailure
}

// ownErrors are the codes of responses that this program's keys and scripts cause, whatever the state of Redis.
var ownErrors = []string{"WRONGTYPE", "CROSSSLOT", "NOSCRIPT", "NOTBUSY"}

// failureOfResponse returns the failure of an error response.
func failureOfResponse(text string) Failure {
	code, _, _ := strings.Cut(text, " ")
	switch {
	case text == redis.Nil.Error(), slices.Contains(ownErrors, code):
		return NoFailure
	case code == "OOM":
		return Full
	case code == "NOAUTH", code == "WRONGPASS", code == "NOPERM", code == "DENIED", containsAny(text, "invalid password", "without any password",
		"Protocol error: unauthenticated", // to a command with many arguments, before the password
		// Redis 7.0 and later report a script's missing right with the code ERR.
		"The user executing the script can't", "ACL failure in script"):
		return Forbidden
	case code == "ERR" && isOfScript(text):
		return NoFailure
	}
	return Refused
}

// isOfScript reports whether a script of this program made the error itself. An operator's SCRIPT KILL is not the script's error.
func isOfScript(text string) bool {
	return containsAny(text, "user_script", "user_function", "Error compiling", "Error running script") && !strings.Contains(text, "killed by user")
}

// isOfSentinels reports whether no sentinel named the master. A sentinel that knows no such master responds with nil.
func isOfSentinels(err error) bool {
	return strings.Contains(err.Error(), "redis: all sentinels specified in configuration")
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// isTLS reports whether a handshake failed.
func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	_, ok := errors.AsType[tls.AlertError](err)
	return ok
}

// Unavailable reports whether err is a failure of Redis: Redis is unreachable, too slow, loading, out of memory, without its replicas, failing
// over, moving a slot, or refuses the user. The same call may work later. It is false for nil and for errors of this program, such as an error
// of a script. [FailureOf] names the failure.
func Unavailable(err error) bool { return FailureOf(err) != NoFailure }

// ReplyLost reports whether a command may have run although err came back: the connection
// failed, and Redis gave no response. It is false for [ErrBreakerOpen].
func ReplyLost(err error) bool {
	var answer redis.Error
	return !errors.As(err, &answer) && Unavailable(err) && !errors.Is(err, ErrBreakerOpen) && !errors.Is(err, errPassword)
}
