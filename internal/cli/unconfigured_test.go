package cli_test

import (
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// A command that finds no configuration file looks at every bucket that Redis knows, and changes it, as one that has the file. What it
// does not know, it says so of.
func TestCommandsWithoutAConfiguration(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	bare := &site{env: []string{"TUNDISH_REDIS_URL=" + s.url, "TUNDISH_REDIS_TIMEOUT=10s"}}
	s.enqueue(t, "webhooks", "a", "b", "c")
	s.deliver(t, 3, shaper.Dead("http_410", "Gone"))
	bare.run(t, "dispatcher dead redrive webhooks a").want(t, 0, "redriven: 1 job")
	bare.run(t, "dispatcher dead drop webhooks b").want(t, 0, "dropped: 1 dead letter")
	bare.run(t, "dispatcher dead redrive webhooks --all").want(t, 0, "redriven: 1 job")
	bare.run(t, "dispatcher job cancel webhooks a").want(t, 0, "cancelled")
	bare.run(t, "dispatcher bucket set webhooks --rate 20/s").want(t, 0, "back to the configuration")

	shown := bare.run(t, "dispatcher bucket show webhooks")
	shown.want(t, 0, "differs from its configuration")
	shown.lacks(t, "the configuration here", "orphaned")
	const next = "no configuration was read here: name the file with --config"
	bare.run(t, "dispatcher dead redrive nosuch --all").want(t, 4, `unknown bucket "nosuch"`, next)
	bare.run(t, "dispatcher job cancel nosuch a").want(t, 4, next)
	bare.run(t, "dispatcher limit list").want(t, 0, next)
	bare.run(t, "dispatcher limit set per-caller --limit 3/m").want(t, 4, `limit "per-caller" is not configured`, next)
	s.run(t, "dispatcher dead redrive nosuch --all").lacks(t, next)
	s.run(t, "dispatcher limit list").want(t, 0, "there are no limits: declare one")
}
