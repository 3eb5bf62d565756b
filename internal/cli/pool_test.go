package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
)

// poolTable is the pool of poolSite.
const poolTable = "[[pools]]\nname = \"vendor\"\nrate = \"1/h\"\nmax_in_flight = 7\n"

// bucketIn is a bucket as a table of the configuration, with more keys.
func bucketIn(name string, keys ...string) string {
	return fmt.Sprintf("[[buckets]]\nname = %q\nrate = \"50/s\"\n%s\n", name, strings.Join(keys, "\n"))
}

// poolSite has the buckets "webhooks" and "mails" in a pool, and "alone" in none.
func poolSite(t *testing.T) *site {
	t.Helper()
	server := redistest.Start(t)
	return &site{redis: server.Client(), env: writeConfig(t, fmt.Sprintf("[redis]\nurl = %q\n", server.URL())+poolTable+
		bucketIn("webhooks", `pool = "vendor"`, "weight = 3")+bucketIn("mails", `pool = "vendor"`)+bucketIn("alone"))}
}

// connected gives the site a client with its buckets as they are then configured.
func (s *site) connected(t *testing.T, pool *shaper.Pool, weight int64) {
	t.Helper()
	s.own = bucket(t, "webhooks")
	s.own.Pool, s.own.Weight = pool, weight
	var err error
	if s.client, err = shaper.NewClient(shaper.ClientConfig{Redis: s.redis, Buckets: []shaper.Bucket{s.own}}); err != nil {
		t.Fatal(err)
	}
}

func TestBucketsOfAPool(t *testing.T) {
	t.Parallel()
	s := poolSite(t)
	unused := s.run(t, "dispatcher bucket list")
	unused.want(t, 0, "OLDEST  POOL                           NOTE", "vendor: 1/h, 0 of 7 in flight", "not used yet")
	if n := strings.Count(unused.out, "vendor: "); n != 2 {
		t.Errorf("%d buckets are listed in the pool, want 2:\n%s", n, unused.out)
	}
	vendor := &shaper.Pool{Name: "vendor", Rate: bucket(t, "x").Rate, Burst: 4}
	s.connected(t, vendor, 5)
	s.enqueue(t, "webhooks", "a")
	s.run(t, "dispatcher bucket list").want(t, 0, "vendor: 50/s, 0 in flight")
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "pool        vendor: 50/s, burst 4, 0 in flight; weight 5 of the bucket")
	s.run(t, "dispatcher bucket list --diff").want(t, 0,
		"webhooks  pool.rate           1/h         50/s      an operator set it, or another configuration is in force",
		"webhooks  pool.max_in_flight  7           0 ", "webhooks  pool.burst          1           4 ")
	if out := s.run(t, "dispatcher bucket show alone").out; strings.Contains(out, "pool") {
		t.Errorf("a bucket is shown in a pool:\n%s", out)
	}
	var views []struct{ Pool map[string]any }
	asJSON := s.run(t, "dispatcher bucket list --json")
	if err := json.Unmarshal([]byte(asJSON.out), &views); err != nil || len(views) != 3 || views[2].Pool != nil ||
		views[0].Pool["name"] != "vendor" || views[0].Pool["rate"] != "50/s" || views[0].Pool["weight"] != 5.0 || views[0].Pool["in_flight"] != 0.0 {
		t.Errorf("--json = %v, %+v\n%s", err, views, asJSON.out)
	}
	s.deliver(t, 1, shaper.Done(200))
	s.enqueue(t, "webhooks", "b")
	s.run(t, "dispatcher bucket pause webhooks").want(t, 0) // which writes what the configuration here says of the pool
	s.run(t, "dispatcher job show webhooks b").want(t, 0, `pool "vendor" may send again at `, "at its own pace")
	s.run(t, "dispatcher job show webhooks b --json").want(t, 0, `"pool-pace"`)
	s.run(t, "dispatcher config check").want(t, 0, "is valid: 3 buckets, 0 limits, 1 pool")
	s.run(t, "dispatcher config print").want(t, 0, "[[pools]]\n", `pool = "vendor"`, "weight = 3 ")
}

// A bucket that was given a pool while it holds jobs is not used until it is moved, and it is said what to do.
func TestBucketThatJoinsAPool(t *testing.T) {
	t.Parallel()
	s := poolSite(t)
	s.connected(t, nil, 1)
	s.enqueue(t, "webhooks", "a")
	s.run(t, "dispatcher bucket list").want(t, 0, `1/5`, `it is in no pool, the configuration here has it in pool "vendor", so it is not used: if that is right, pause it, then run dispatcher bucket move webhooks`)
	s.run(t, "dispatcher job cancel webhooks a").want(t, 2, "1 of its jobs are kept with the tag \"webhooks\", the configuration wants \"vendor\"",
		"pause it, then run dispatcher bucket move webhooks")
	s.run(t, "dispatcher bucket pause webhooks").want(t, 0, "paused: webhooks")
	s.run(t, "dispatcher job show webhooks a").want(t, 0, "queued", "paused")
	if _, err := s.client.Cancel(t.Context(), "webhooks", "a"); err != nil {
		t.Fatal(err)
	}
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "not used yet")
	s.run(t, "dispatcher bucket resume webhooks").want(t, 0, "resumed: webhooks")
}

// Daemons say at once that such a bucket is not used, and why.
func TestDaemonsTellOfABucketThatJoinsAPool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := &site{redis: server.Client()}
	s.connected(t, nil, 1)
	s.enqueue(t, "webhooks", "a")
	p := newPlan(t, server.URL(), "rate = \"100/s\"\npool = \"vendor\"\n")
	p.rewrite(t, func(text string) string { return text + poolTable })
	for _, words := range []string{"dispatcher run", "producer serve"} {
		daemon := start(t, p.env, words)
		eventually(t, words+" tells of the bucket", func() bool {
			return daemon.said(`"bucket":"webhooks","jobs_are_in":"no pool","configured_in":"pool \"vendor\""`)
		})
		if code := daemon.end(); code != 0 {
			t.Errorf("%s: the exit code is %d", words, code)
		}
	}
}

// The settings of a pool can change under daemons that run; who is in it cannot.
func TestDaemonsFollowThePool(t *testing.T) {
	t.Parallel()
	p := newPlan(t, redistest.Start(t).URL(), "rate = \"100/s\"\npool = \"vendor\"\n")
	p.rewrite(t, func(text string) string { return text + poolTable })
	dispatcher, producer := start(t, p.env, "dispatcher run"), start(t, p.env, "producer serve")
	producer.ready(t, p.api)
	dispatcher.ready(t, p.ops)
	to := receive(t)
	command(t.Context(), p.env, "1\n2\n3\n4\n", "producer send webhooks --url "+to.URL).want(t, 0, "4 jobs in")

	p.rewrite(t, func(text string) string { return strings.Replace(text, `pool = "vendor"`, "", 1) })
	for _, daemon := range []*running{producer, dispatcher} {
		eventually(t, "refused", func() bool {
			return daemon.said("the old one stays in force") && daemon.said("it cannot join or leave one while the bucket is in use")
		})
	}
	if n := to.count(); n != 0 {
		t.Errorf("%d jobs left at 1/h", n)
	}
	p.rewrite(t, func(text string) string {
		return strings.NewReplacer(`"1/h"`, `"100/s"`, "rate = \"100/s\"\n", "rate = \"100/s\"\npool = \"vendor\"\nweight = 9\n").Replace(text)
	})
	for _, daemon := range []*running{producer, dispatcher} {
		eventually(t, "applied", func() bool {
			return daemon.said(`buckets \"webhooks\".weight, pools \"vendor\".rate`)
		})
	}
	eventually(t, "the new rate holds", func() bool { return to.count() == 4 })
	if codes := [2]int{producer.end(), dispatcher.end()}; codes != [2]int{} {
		t.Errorf("the exit codes are %v", codes)
	}
}
