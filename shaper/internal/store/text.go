package store

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

func PauseText(since int64) string {
	if since == 0 {
		return "running"
	}
	return "paused since " + time.UnixMicro(since).UTC().Format(time.RFC3339)
}

func ChangesText(changes []shaper.Change) string {
	texts := make([]string, len(changes))
	for i, change := range changes {
		texts[i] = change.String()
	}
	return strings.Join(texts, ", ")
}

func BoolArg(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ShortID is a random name for claims and dispatchers: 16 characters.
func ShortID(random uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], random)
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// eventsText names kinds of events, with spaces between.
func eventsText(events []shaper.Event) string {
	names := make([]string, len(events))
	for i, event := range events {
		names[i] = string(event)
	}
	return strings.Join(names, " ")
}

// textsOf returns the first n values as texts, "" where there is none.
func textsOf(values []any, n int) []string {
	texts := make([]string, n)
	for i := range min(n, len(values)) {
		texts[i], _ = values[i].(string)
	}
	return texts
}
