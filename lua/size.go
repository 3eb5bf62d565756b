package lua

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// MaxWords bounds the KEYS and ARGV of one script call, together. Redis takes a million, but not every server that speaks its protocol does: one
// refused 4,000. A settlement that such a server refuses is refused again each time that it is sent.
const MaxWords = 3000

// ErrTooLarge reports that a call would have more than [MaxWords] KEYS and ARGV. It was not sent.
var ErrTooLarge = errors.New("lua: the call of a script is too large")

// CheckSize returns an error that wraps [ErrTooLarge] if a call has more than [MaxWords] KEYS and ARGV.
func CheckSize(keys []string, args []any) error {
	if n := len(keys) + len(args); n > MaxWords {
		return fmt.Errorf("%w: it has %d KEYS and ARGV, want at most %d", ErrTooLarge, n, MaxWords)
	}
	return nil
}

// sizeRefusals are parts of the error responses, in lower case, by which servers refuse a call with many arguments, or a script fails that
// unpacks them.
var sizeRefusals = []string{
	"multibulk length", "mbulk", "bulk count", "too many arguments", "too many args", "too many keys", "too many parameters",
	"number of arguments exceed", "arguments exceeds", "too many results to unpack", "request too large", "request is too large",
}

// IsTooLarge reports whether a call was not made, or was refused by the server, because of its size: a part of it may work.
func IsTooLarge(err error) bool {
	if errors.Is(err, ErrTooLarge) {
		return true
	}
	var refused redis.Error
	if !errors.As(err, &refused) {
		return false
	}
	text := strings.ToLower(refused.Error())
	return slices.ContainsFunc(sizeRefusals, func(part string) bool { return strings.Contains(text, part) })
}

// InParts calls do with the items in order, with at most most of them at a time, and returns its first error. A part that is too large for one
// call (see [IsTooLarge]) is halved, and no later part is larger. do must be safe to call twice.
func InParts[T any](items []T, most int, do func(some []T) error) error {
	for len(items) > 0 {
		n := min(len(items), most)
		switch err := do(items[:n:n]); {
		case n > 1 && IsTooLarge(err):
			most = n / 2
		case err != nil:
			return err
		default:
			items = items[n:]
		}
	}
	return nil
}
