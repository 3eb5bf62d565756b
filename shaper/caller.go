package shaper

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// Owner is the caller of a job, as Redis stores it. The zero value means that the job has no caller.
type Owner struct {
	// Mark is a short name of the caller: letters while the job exists, digits derived from them after its end. It is "" if a schedule, a hook, a
	// callback, a program of the library, a worker of asynq or a request without a key enqueued the job.
	Mark string
}

const (
	callerLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	callerLength  = 7       // letters of a mark: 52^7 callers are distinct
	endedMarks    = 1000000 // number of distinct marks after the end of a job
)

// CallerMark returns the short name of a caller that Redis stores with a job: seven letters, or "" for "".
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

// endedMark returns what remains of a mark after its job has ended: see lua/lib/codec.lua.
func endedMark(mark string) string {
	n := 0
	for _, c := range []byte(mark) {
		n = n*len(callerLetters) + strings.IndexByte(callerLetters, c)
	}
	return fmt.Sprintf("%06d", n%endedMarks)
}

// Is reports whether the job belongs to the caller, so that it may see it.
func (o Owner) Is(caller string) bool {
	switch mark := CallerMark(caller); {
	case o.Mark == "" || mark == "":
		return false
	case len(o.Mark) == callerLength:
		return o.Mark == mark
	default:
		return o.Mark == endedMark(mark)
	}
}

// Prefixes of the ids that this program generates. The HTTP API refuses them from its callers.
const (
	ScheduleID = "schedule-"
	HookID     = "tundish-hook-"
	CallbackID = "tundish-callback-"
	ProxyID    = "proxy-"
	KeyID      = "tundish-key-" // see KeyedID
)

// ReservedIDs returns the prefixes of the ids that this program generates.
func ReservedIDs() []string { return []string{ScheduleID, HookID, CallbackID, ProxyID, KeyID} }

// KeyedID returns the id of the job that a caller enqueues under an Idempotency-Key. Two callers never share an id, even with the same key.
func KeyedID(bucket, caller, key string) string {
	sum := sha256.Sum256([]byte(bucket + "\n" + caller + "\n" + key))
	const bytes = 16
	return KeyID + hex.EncodeToString(sum[:bytes])
}
