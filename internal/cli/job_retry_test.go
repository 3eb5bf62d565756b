package cli_test

import (
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// A job that waits for another attempt is due at once, with the attempts that it had. Jobs are named by their flow, or all at once.
func TestJobRetry(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "a")
	s.deliver(t, 1, shaper.Retry("http_503", ""))
	s.run(t, "dispatcher job retry webhooks").want(t, 2, "name the jobs: --flow")
	s.run(t, "dispatcher job retry webhooks --flow a --all").want(t, 2, "name the jobs: --flow")
	s.run(t, "dispatcher job retry webhooks --flow a").want(t, 2, "no flows")
	s.run(t, "dispatcher job retry nosuch --all").want(t, 4, "nosuch")
	s.run(t, "dispatcher job retry webhooks --all").want(t, 0, "due now: 1 job", "bucket why webhooks")
	s.run(t, "dispatcher job retry webhooks --all --json").want(t, 0, `"jobs": 0`)
	s.run(t, "dispatcher job retry webhooks --all").want(t, 0, "due now: 0 jobs", "no job waits for another attempt", "dead redrive webhooks")
	s.run(t, "dispatcher job list webhooks --state failed").want(t, 2, "--state: \"failed\": want one of [queued ", " later] or any")
	s.deliver(t, 1, shaper.Done(200))
	s.run(t, "dispatcher job show webhooks a").want(t, 0, "done")
}
