package cli_test

import (
	"context"
	"strings"
	"testing"
	"time"
)

// The status has problems first, each with the command that helps, and a line for each bucket.
func TestStatusScreen(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "a", "b")
	calm := s.run(t, "dispatcher status")
	calm.want(t, 0, "2 unfinished jobs, 0 of them in flight", "BUCKET", "WAITING  LATER", "webhooks")
	if strings.Contains(calm.out, "dispatcher bucket") {
		t.Errorf("there is no problem:\n%s", calm.out)
	}
	s.run(t, "dispatcher bucket pause webhooks --reason leak").want(t, 0)
	paused := s.run(t, "dispatcher status")
	paused.want(t, 0, "leak", "dispatcher bucket resume webhooks")
	if at := strings.Index(paused.out, "BUCKET"); at < strings.Index(paused.out, "bucket resume") {
		t.Errorf("the problem is not first:\n%s", paused.out)
	}
	s.run(t, "dispatcher status --check").want(t, 1, "1 bucket with notes")
	s.run(t, "dispatcher status --json").want(t, 0, `"bucket resume webhooks"`)
	s.run(t, "dispatcher status --watch --json").want(t, 2, "--watch is for a terminal")

	ctx, stop := context.WithCancel(t.Context())
	defer time.AfterFunc(200*time.Millisecond, stop).Stop()
	command(ctx, s.env, "", "dispatcher status --watch").want(t, 0)
}
