package shaper

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// Owner is the caller of a job, as Redis remembers it. The zero value is that of a job without a caller.
type Owner struct {
	// Mark names the caller of the job in short: letters while the job exists, digits of them after its end. "" means that the job
	// has no caller: a schedule, a hook, a callback, a program of the library or a worker of asynq made it, or a request without a key.
	Mark string

	// Before says of a job without a caller that it came before jobs had callers. Every caller sees such a job until it ends.
	Before bool
}

const (
	callerLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	callerLength  = 7       // letters of a mark: 52^7 callers are told apart
	endedMarks    = 1000000 // after the end of a job, so many
)

// CallerMark is the short name of a caller, as Redis keeps it beside a job: seven letters, "" of "".
func CallerMark(caller string) string {
	if caller == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("caller\n" + caller))
	n := binary.BigEndian.Uint64(sum[:8])
	var mark [callerLength]byte
	for i := range mark {
		mark[i] = callerLetters[n%uint64(len(callerLetters))]
		n /= uint64(len(callerLetters))
	}
	return string(mark[:])
}

// endedMark is what is left of a mark when its job has ended: see lua/lib/codec.lua.
func endedMark(mark string) string {
	n := 0
	for _, c := range []byte(mark) {
		n = n*len(callerLetters) + strings.IndexByte(callerLetters, c)
	}
	return fmt.Sprintf("%06d", n%endedMarks)
}

// Is reports whether a caller may see the job as its own.
func (o Owner) Is(caller string) bool {
	switch mark := CallerMark(caller); {
	case o.Mark == "":
		return o.Before
	case mark == "":
		return false
	case len(o.Mark) == callerLength:
		return o.Mark == mark
	default:
		return o.Mark == endedMark(mark)
	}
}

// Beginnings of the ids that this program makes. The HTTP API refuses them to its callers.
const (
	ScheduleID = "schedule-"
	HookID     = "tundish-hook-"
	CallbackID = "tundish-callback-"
	ProxyID    = "proxy-"
	KeyID      = "tundish-key-" // see KeyedID
)

// ReservedIDs are the beginnings of the ids that this program makes.
func ReservedIDs() []string { return []string{ScheduleID, HookID, CallbackID, ProxyID, KeyID} }

// KeyedID is the id of the job that a caller enqueues under an Idempotency-Key: the keys of two callers are two, whatever they say.
func KeyedID(bucket, caller, key string) string {
	sum := sha256.Sum256([]byte(bucket + "\n" + caller + "\n" + key))
	const bytes = 16
	return KeyID + hex.EncodeToString(sum[:bytes])
}
