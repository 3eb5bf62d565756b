package producer

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// The same id twice in one call is a duplicate, also where its job ended between two batches.
func TestSameIDTwiceInACall(t *testing.T) {
	t.Parallel()
	ended := &shaper.Refusal{Reason: shaper.ReasonIDEnded}
	receipts := []shaper.Receipt{
		{ID: "a", Bucket: "b", State: shaper.StateQueued}, {ID: "a", Bucket: "b", State: shaper.StateDead, Refusal: ended},
		{ID: "old", Bucket: "b", State: shaper.StateDead, Refusal: ended}, {ID: "a", Bucket: "c", State: shaper.StateDead, Refusal: ended},
	}
	keepOwnDuplicates(receipts)
	for i, refused := range []bool{false, false, true, true} {
		if (receipts[i].Refusal != nil) != refused || receipts[i].Duplicate != (i == 1) {
			t.Errorf("%d: %+v", i, receipts[i])
		}
	}
}

// Ids that are made here are UUIDs of version 7: in the order of their milliseconds, and
// no two the same.
func TestNewID(t *testing.T) {
	t.Parallel()
	before := time.Now().UnixMilli()
	seen := map[string]bool{}
	for range 10_000 {
		text := newID()
		id, err := uuid.Parse(text)
		if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 || !shaper.ValidID(text) || seen[text] {
			t.Fatalf("%s: %v, version %d, variant %s, seen %t", text, err, id.Version(), id.Variant(), seen[text])
		}
		seen[text] = true
		at := int64(binary.BigEndian.Uint64(id[:8]) >> 16)
		if now := time.Now().UnixMilli(); at < before || at > now {
			t.Fatalf("%s is of %d, and it is %d", text, at, now)
		}
		before = at
	}
}

// There is a line for each limit each 10 s, and it says how many jobs it stands for.
func TestShadowSample(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	var sample shadowLog
	log, now := slog.New(slog.NewTextHandler(&text, nil)), time.Now()
	note := func(limit string, after time.Duration) {
		sample.note(t.Context(), log, &admission.Decision{Limit: limit, WouldRefuse: true}, &shaper.Job{Bucket: "b", ID: "j"}, now.Add(after))
	}
	for i := range 100 {
		note("a", time.Duration(i)*100*time.Millisecond)
	}
	note("b", 0)
	note("a", shadowSample)
	note("a", shadowSample+1)
	var got []string
	for line := range strings.Lines(text.String()) {
		_, rest, _ := strings.Cut(line, "limit=")
		got = append(got, strings.Join(strings.Fields(rest)[:2], " "))
	}
	if want := "a would_have_refused=1|b would_have_refused=1|a would_have_refused=100"; strings.Join(got, "|") != want {
		t.Errorf("%q", got)
	}
}
