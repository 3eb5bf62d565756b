package scripts_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tundish-io/tundish/internal/must"
)

// died is a job that became a dead letter by a claim: why is 0 if it has expired, -1 if max_age has passed.
type died struct {
	why      int64
	id, flow string
	attempts int64
}

// lineOf is the line of an attempt that a dispatcher sends with an outcome.
func (r *rig) lineOf(o outcome) string {
	if o.attempt != "" || o.result == done || o.result == returned {
		return o.attempt
	}
	return fmt.Sprintf(`{"at":%d,"number":%d}`, r.now(), o.number)
}

// obeyAttempts has the bucket obey these settings. max_age is in microseconds.
func (r *rig) obeyAttempts(keep int, maxAge int64) {
	r.t.Helper()
	r.hset("settings", "keep_attempts", keep, "max_age", maxAge)
}

// attempts are the texts that are kept, by id.
func (r *rig) attempts() map[string]string {
	r.t.Helper()
	texts := r.hash("attempts")
	return texts
}

var attemptsText = regexp.MustCompile(`^\d*(\n\{[^\n]*\})*$`)

// wantAttemptsOfJobs fails if attempts are kept of a job that is gone, or are not kept of one that was tried.
func (r *rig) wantAttemptsOfJobs() {
	r.t.Helper()
	kept := r.attempts()
	metas := r.hash("meta")
	for id, text := range kept {
		if metas[id] == "" || !attemptsText.MatchString(text) || len(text) > 2048 {
			r.t.Fatalf("of %s with the meta %q are kept the attempts %q", id, metas[id], text)
		}
	}
	for id, meta := range metas {
		tried := must.Get(strconv.Atoi(strings.Split(meta, " ")[2]))(r.t)
		if first, _, _ := strings.Cut(kept[id], "\n"); tried > 0 && first == "" {
			r.t.Fatalf("%s has the meta %q, and its attempts are %q", id, meta, kept[id])
		}
	}
}
