package config

import (
	"slices"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// Every bucket notes what some hook wants to hear of, and the jobs of a hook have the flow and the group that its bucket wants of them.
func TestHooks(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
[[buckets]]
name = "plain"
rate = "10/s"
[[buckets]]
name = "parted"
rate = "10/s"
flow.key = "job"
group.key = "job"
[[buckets]]
name = "hosts"
rate = "10/s"
flow.key = "host"
[[hooks]]
events = ["job.dead", "flow.disabled"]
bucket = "parted"
url = "https://ops.example/a"
[[hooks]]
events = ["job.dead", "bucket.full"]
bucket = "hosts"
url = "https://ops.example/"
`)
	wanted := []shaper.Event{shaper.EventJobDead, shaper.EventFlowDisabled, shaper.EventBucketFull}
	for _, b := range c.Buckets {
		if !slices.Equal(b.Events, wanted) {
			t.Errorf("bucket %s notes %v", b.Name, b.Events)
		}
	}
	parted, hosts := c.Hooks[0], c.Hooks[1]
	if parted.Flow != "hooks" || parted.Group != "hooks" || hosts.Flow != "" || hosts.Group != "" || hosts.URL != "https://ops.example/" {
		t.Errorf("the hooks are %+v and %+v", parted, hosts)
	}
	if without := mustLoad(t, "[[buckets]]\nname = \"plain\"\nrate = \"10/s\"\n"); len(without.Buckets[0].Events) > 0 {
		t.Errorf("without hooks are noted %v", without.Buckets[0].Events)
	}
}
