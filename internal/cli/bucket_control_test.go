package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/stored"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "a", "b")
	s.run(t, "dispatcher bucket pause webhooks --reason maintenance").want(t, 0, "paused: webhooks")
	s.run(t, "dispatcher bucket pause webhooks --reason maintenance --json").want(t, 0, `"reason": "maintenance"`, `"by": "user `)
	s.run(t, "dispatcher bucket list").want(t, 0, "paused ", " by user ", ": maintenance")
	if shown := s.run(t, "dispatcher bucket show webhooks"); strings.Count(shown.out, "maintenance") != 1 {
		t.Errorf("the pause is not told once:\n%s", shown.out)
	}
	s.run(t, "dispatcher bucket list --diff").want(t, 0, "BUCKET", "paused   no          yes")
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "maintenance")
	job := s.run(t, "dispatcher job show webhooks b --json")
	job.want(t, 0, "is paused since ", "(maintenance); 1 ahead of it", `"paused",`, `"ahead"`)
	var view map[string]any
	if err := json.Unmarshal([]byte(job.out), &view); err != nil || view["eta"] != nil {
		t.Errorf("a time is told: %v, %v", view["eta"], err)
	}
	s.run(t, "dispatcher bucket resume webhooks").want(t, 0, "resumed: webhooks")
	s.run(t, "dispatcher bucket resume webhooks").want(t, 0, "was not paused: webhooks")
	s.run(t, "dispatcher bucket pause nosuch").want(t, 4, `unknown bucket "nosuch"`)
	s.run(t, "dispatcher bucket pause").want(t, 2, "NAME is missing")
}

// Lower budgets kill jobs that reserve more, which the change tells; higher ones do not.
func TestLowerBudgetsTellOfDeaths(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	set := func(budgets string) result {
		return runArgs(t.Context(), s.env, "", "dispatcher", "bucket", "set", "webhooks", "--budgets", budgets)
	}
	const dead = "a waiting job that reserves more than a budget has becomes a dead letter"
	set("9000 tokens/m").want(t, 0, "budgets none → 9000 tokens/m\n"+dead)
	set("20000 tokens/m, 9000 tokens/h").lacks(t, dead)
	set("20000 tokens/m, 90000 tokens/h").lacks(t, dead)
	set("20000 tokens/m").lacks(t, dead)
	set("3000 tokens/m").want(t, 0, dead)
	set("3000 tokens/m, 10 images/d").want(t, 0, dead)
	s.run(t, "dispatcher bucket reset webhooks").lacks(t, dead)
}

func TestSetAndReset(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run(t, "dispatcher bucket set webhooks --rate 1/h --capacity 9 --shed-low 50").want(t, 0, "rate 50/s → 1/h\n", "capacity 5 → 9", "shed.low 100 → 50",
		"\nto go back to the configuration: `dispatcher bucket reset webhooks rate capacity shed.low`\n")
	inJSON := s.run(t, "dispatcher bucket set webhooks --burst 3 --json")
	inJSON.lacks(t, "back to")
	inJSON.want(t, 0, `"rate": "1/h"`, `"setting": "shed.low"`, `"in_force": "3"`)
	s.run(t, "dispatcher bucket list").want(t, 0, "1/h", "0/9", "bucket list --diff")
	s.run(t, "dispatcher bucket list --diff").want(t, 0, "webhooks  rate      50/s        1/h       set ", " by user ", "shed.low")
	s.run(t, "dispatcher bucket list --diff --json").want(t, 0, `"configured": "50/s"`)
	s.run(t, "dispatcher bucket reset webhooks rate").want(t, 0, "rate 1/h → 50/s")
	s.run(t, "dispatcher bucket reset webhooks").want(t, 0, "burst 3 → 1", "capacity 9 → 5")
	s.run(t, "dispatcher bucket reset webhooks").want(t, 0, "nothing is changed")
	s.run(t, "dispatcher bucket list --diff --json").want(t, 0, "[]")

	s.run(t, "dispatcher bucket set webhooks").want(t, 2, "nothing is changed: give --rate")
	s.run(t, "dispatcher bucket set webhooks --rate 0/s").want(t, 2, "--rate", "paused: pause it")
	s.run(t, "dispatcher bucket set webhooks --rate=-1/s").want(t, 2, "want 1 or more")
	s.run(t, "dispatcher bucket set webhooks --rate NaN/s").want(t, 2, "not a whole number")
	s.run(t, "dispatcher bucket set webhooks --rate 1000001/s").want(t, 2, "more than 1000000 a second")
	s.run(t, "dispatcher bucket set webhooks --capacity 0").want(t, 2, "capacity: 0: want 1 to")
	s.run(t, "dispatcher bucket set nosuch --capacity 1").want(t, 4)
	s.run(t, "dispatcher bucket reset webhooks name").want(t, 2, "is no setting that can be changed")
}

func TestPurgeCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "a", "b", "c")
	s.enqueue(t, "gone", "d")
	s.run(t, "dispatcher bucket purge webhooks").want(t, 2, "--yes")
	s.run(t, "dispatcher bucket purge webhooks --dry-run").want(t, 0, "a purge would drop 3 waiting jobs; nothing is changed")
	s.run(t, "dispatcher bucket purge webhooks --dry-run --yes --json").want(t, 0, `"matched": 3`)
	s.run(t, "dispatcher bucket purge nosuch --dry-run").want(t, 4, `unknown bucket "nosuch"`)
	s.run(t, "dispatcher bucket purge webhooks --yes").want(t, 0, "purged: 3 jobs")
	s.run(t, "dispatcher job show webhooks a").want(t, 0, "cancelled")
	s.run(t, "dispatcher bucket purge webhooks --yes --keep-later --json").want(t, 0, `"purged": 0`)
	s.run(t, "dispatcher bucket purge gone --yes").want(t, 0, "purged: 1 job")
	s.run(t, "dispatcher bucket list --json").want(t, 0, `"purged": 3`, "orphaned: not in the configuration, and empty")
	s.run(t, "dispatcher bucket purge nosuch --yes").want(t, 4)
}

// An operator says from how many dead letters on a bucket is to say so.
func TestDeadWarn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "first") // the bucket is configured then
	for i, id := range []string{"a", "b"} {
		s.redis.ZAdd(t.Context(), stored.Key("webhooks", "dead"), redis.Z{Member: id, Score: float64(i + 1)})
	}
	s.run(t, "dispatcher bucket list").lacks(t, "dead_warn")
	s.run(t, "dispatcher bucket set webhooks --dead-warn 2").want(t, 0, "dead_warn 0 → 2")
	s.run(t, "dispatcher bucket list").lacks(t, "dead letters, more than")
	s.run(t, "dispatcher bucket set webhooks --dead-warn 1").want(t, 0, "dead_warn 2 → 1")
	s.run(t, "dispatcher bucket list").want(t, 0, "2 dead letters, more than 1 (dead_warn)")
	s.run(t, "dispatcher bucket show webhooks --json").want(t, 0, `"dead_warn": 1`, `"setting": "dead_warn"`)
	s.run(t, "dispatcher bucket reset webhooks dead_warn").want(t, 0, "dead_warn 1 → 0")
	s.run(t, "dispatcher bucket set webhooks --dead-warn=-1").want(t, 2, "dead_warn: -1: want 0 to")
}
