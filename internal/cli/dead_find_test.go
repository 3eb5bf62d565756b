package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
)

// Dead letters are found, exported, redriven and dropped by what they have in common.
func TestDeadLettersByFilter(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "first") // the bucket is configured then
	key := stored.Key("webhooks", "")
	pipe := s.redis.Pipeline()
	for i := range 6 {
		id := fmt.Sprint("j", i)
		pipe.HSet(t.Context(), key+"body", id, fmt.Sprintf("%d 1 00000000000cn001 \n{\"n\":%d}", i, i))
		pipe.HSet(t.Context(), key+"meta", id, fmt.Sprintf(`5 1 1 0 0 - {"cause":"permanent","status":%d,"reason":"http_404","detail":"number %d"}`, 400+i%2, i))
		pipe.ZAdd(t.Context(), key+"dead", redis.Z{Member: id, Score: float64(1783228800000000 + i)})
	}
	must.Get(pipe.Exec(t.Context()))(t)
	page := s.run(t, "dispatcher dead list webhooks --status 401 --limit 2")
	page.want(t, 0, "j5", "j3", "there may be more: --after ")
	_, after, _ := strings.Cut(page.err, "--after ")
	s.run(t, "dispatcher dead list webhooks --status 401 --after "+strings.TrimSpace(after)).want(t, 0, "j1")
	s.run(t, "dispatcher dead list webhooks --since 1m").want(t, 0, "has no such dead letter")
	s.run(t, "dispatcher dead list webhooks --since 1m --json").want(t, 0, "[]")
	s.run(t, "dispatcher dead list webhooks --since 2026-07-05T05:20:00Z --reason http_404 --json").want(t, 0, `"id": "j0"`)
	if lines := s.run(t, "dispatcher dead export webhooks --status 400"); lines.code != 0 || strings.Count(lines.out, "\n") != 3 || !strings.Contains(lines.out, `"payload":{"n":4}`) {
		t.Errorf("exported: %+v", lines)
	}
	for args, said := range map[string]string{
		"list webhooks --status 42": "want a status of HTTP", "list webhooks --cause bad": "want one of", "list webhooks --since soon": "want a time",
		"list webhooks --status 401 --offset 3": "--after", "redrive webhooks --all --limit 1 --status 401": "--limit is 1 or more", "redrive webhooks j1 --status 401": "choose one",
		"redrive webhooks --all --dry-run": "goes with a filter", "drop webhooks --status 401": "--yes", "list webhooks --after x --status 401": "none of ours", "reasons webhooks --status 42": "want a status of HTTP",
	} {
		s.run(t, "dispatcher dead "+args).want(t, 2, said)
	}
	for _, args := range [][]string{{"redrive", "webhooks"}, {"drop", "webhooks", "--yes"}, {"drop", "webhooks", "--yes", "--all"}} {
		// As a script does whose variable is empty.
		runArgs(t.Context(), s.env, "", slices.Concat([]string{"dispatcher", "dead"}, args, []string{"--cause", ""})...).want(t, 2, "the filter is empty")
	}
	s.run(t, "dispatcher dead reasons webhooks").want(t, 0, "3             permanent  http_404  400", "3             permanent  http_404  401")
	s.run(t, "dispatcher dead reasons webhooks --status 401 --json").want(t, 0, `"dead_letters": 3`, `"newest": "2026-07-05T05:20:00.000005Z"`)
	s.run(t, "dispatcher dead reasons webhooks --since 1m").want(t, 0, "has no such dead letters")
	s.run(t, "dispatcher dead redrive webhooks --status 401 --dry-run").want(t, 0, "the filter means: 3 dead letters; nothing is changed")
	s.run(t, "dispatcher dead redrive webhooks --status 401 --all").want(t, 0, "redriven: 3 jobs")
	s.run(t, "dispatcher dead drop webhooks --status 400 --dry-run").want(t, 0, "the filter means: 3 dead letters")
	s.run(t, "dispatcher dead drop webhooks --status 400 --yes --json").want(t, 0, `"dropped": 3`)
	s.run(t, "dispatcher dead list webhooks").want(t, 0, "0 dead letters")
}
