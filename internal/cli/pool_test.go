package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
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
	return poolSiteOn(t, redistest.Start(t))
}

func poolSiteOn(t *testing.T, server *redistest.Server) *site {
	t.Helper()
	return &site{redis: server.Client(), env: writeConfig(t, fmt.Sprintf("[redis]\nurl = %q\ntimeout = \"10s\"\n", server.URL())+poolTable+
		bucketIn("webhooks", `pool = "vendor"`, "weight = 3")+bucketIn("mails", `pool = "vendor"`)+bucketIn("alone"))}
}

// connected gives the site a client with its buckets as they are then configured.
func (s *site) connected(t *testing.T, pool *shaper.Pool, weight int64) {
	t.Helper()
	s.own = bucket(t, "webhooks")
	s.own.Pool, s.own.Weight = pool, weight
	var err error
	if s.client, err = producer.New(producer.Config{Redis: s.redis, Buckets: []shaper.Bucket{s.own}, Timeout: patience}); err != nil {
		t.Fatal(err)
	}
}

func TestBucketsOfAPool(t *testing.T) {
	t.Parallel()
	s := poolSite(t)
	unused := s.run(t, "dispatcher bucket list")
	unused.want(t, 0, "OLDEST  POOL                           STATE", "vendor: 1/h, 0 of 7 in flight", "not used yet")
	must.Equal(t, strings.Count(unused.out, "vendor: "), 2, "buckets are listed in the pool, want 2:\n%s", unused.out)
	vendor := &shaper.Pool{Name: "vendor", Rate: bucket(t, "x").Rate, Burst: 4}
	s.connected(t, vendor, 5)
	s.enqueue(t, "webhooks", "a")
	s.run(t, "dispatcher bucket list").want(t, 0, "vendor: 50/s, 0 in flight")
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "pool        vendor: 50/s, burst 4, 0 in flight; weight 5 of the bucket")
	s.run(t, "dispatcher bucket list --diff").want(t, 0,
		"webhooks  pool.rate           1/h         50/s      another configuration is in force",
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
	s.run(t, "dispatcher bucket pause webhooks").want(t, 0) // an operator does not write what the configuration here says of the pool
	s.run(t, "dispatcher bucket list --diff").want(t, 0, "webhooks  pool.rate           1/h         50/s")
	s.run(t, "dispatcher bucket resume webhooks").want(t, 0)
	s.run(t, "dispatcher pool set vendor --rate 1/h --burst 1").want(t, 0)
	s.enqueue(t, "webhooks", "b")
	s.run(t, "dispatcher job show webhooks b").want(t, 0, `pool "vendor" may send again at `, "at its own pace")
	s.run(t, "dispatcher job show webhooks b --json").want(t, 0, `"pool-pace"`)
	s.run(t, "dispatcher config check").want(t, 0, "is valid: 3 buckets, 0 limits, 1 pool")
	s.run(t, "dispatcher config print").want(t, 0, "[[pools]]\n", `pool = "vendor"`, "weight = 3 ")
}

// A bucket says that a quota of its pool is used up, and until when, also one that has sent nothing.
func TestQuotasOfThePoolAreShown(t *testing.T) {
	t.Parallel()
	s := poolSite(t)
	quotas := []admission.Rate{{Count: 2, Per: time.Hour, Unit: admission.UnitRequests}, {Count: 9, Per: 24 * time.Hour, Unit: admission.UnitRequests}}
	s.connected(t, &shaper.Pool{Name: "vendor", Rate: bucket(t, "x").Rate, Burst: 4, Quotas: quotas}, 5)
	s.enqueue(t, "webhooks", "a")
	s.run(t, "dispatcher job cancel webhooks a").want(t, 0)
	s.depart(t, stored.PoolKey("vendor", "departed"), 2)
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "pool quota  2/h: 2 used, 0 left, nothing leaves before ", "9/d: 2 used, 7 left", "pool vendor: its quota of 2/h is used up until ")
	s.run(t, "dispatcher bucket show webhooks --json").want(t, 0, `"quota_use": [`, `"left": 7`, `"held_until": "`)
	if list := s.run(t, "dispatcher bucket list").out; strings.Count(list, "pool vendor: its quota of 2/h is used up until ") != 2 {
		t.Errorf("of both buckets, the list says:\n%s", list)
	}
}

func TestPoolCommands(t *testing.T) {
	t.Parallel()
	s := poolSite(t)
	s.run(t, "dispatcher pool list").want(t, 0, "POOL    RATE  IN FLIGHT  BUCKETS          NOTE", "vendor  1/h   0/7        mails, webhooks  not used yet")
	s.run(t, "dispatcher pool show vendor").want(t, 0, "rate       1/h, burst 1", "in flight  0/7", "bucket     webhooks: weight 3, 0 in flight, nothing to send")
	s.run(t, "dispatcher pool set vendor --rate 20/s --max-in-flight 0").want(t, 0, "rate 1/h → 20/s\nmax_in_flight 7 → 0\nto go back to the configuration: `dispatcher pool reset vendor rate max_in_flight`\n")
	s.run(t, "dispatcher pool set vendor --burst 3 --json").want(t, 0, `"rate": "20/s"`, `"setting": "max_in_flight"`, `"in_force": "3"`, `"by": "user `)
	s.run(t, "dispatcher pool list").want(t, 0, "vendor  20/s  0 ", "differs from the configuration here, see pool show")
	s.run(t, "dispatcher pool show vendor").want(t, 0, "differs    rate is 20/s, not 1/h: set ", " by user ", "max_in_flight is 0, not 7")
	s.run(t, "dispatcher bucket list --diff").want(t, 0, "webhooks  pool.rate           1/h         20/s      set ", " by user ", "mails     pool.max_in_flight  7           0 ")
	s.run(t, "dispatcher bucket list --diff --json").want(t, 0, `"setting": "pool.burst"`, `"at": "`)
	s.run(t, "dispatcher bucket list").want(t, 0, "vendor: 20/s, 0 in flight")
	s.run(t, "dispatcher pool set vendor --burst 1").want(t, 0, "burst 3 → 1")
	s.run(t, "dispatcher pool show vendor").want(t, 0, "differs    burst stays 1, whatever the configuration says: set ")
	s.run(t, "dispatcher pool set vendor --burst 3").want(t, 0, "burst 1 → 3")
	s.run(t, "dispatcher pool reset vendor rate").want(t, 0, "rate 20/s → 1/h")
	s.run(t, "dispatcher pool reset vendor").want(t, 0, "burst 3 → 1", "max_in_flight 0 → 7")
	s.run(t, "dispatcher pool reset vendor").want(t, 0, "nothing is changed")
	s.run(t, "dispatcher pool show vendor --json").want(t, 0, `"revision": 0`, `"overrides": []`, `"differences": []`, `"has_work": false`)

	s.run(t, "dispatcher pool set vendor").want(t, 2, "nothing is changed: give --rate")
	s.run(t, "dispatcher pool set vendor --rate 0/s").want(t, 2, "--rate", "paused: pause it, or the buckets of a pool")
	s.run(t, "dispatcher pool set vendor --burst 0").want(t, 2, `dispatcher: pool "vendor": burst: 0: want 1 to`)
	s.run(t, "dispatcher pool set vendor --max-in-flight=-1").want(t, 2, "max_in_flight: -1: want 0 to")
	s.run(t, "dispatcher pool set vendor --capacity 5").want(t, 2, "unknown flag: --capacity")
	s.run(t, "dispatcher pool reset vendor capacity").want(t, 2, `pool "vendor": capacity: is no setting of a pool: want [rate burst max_in_flight budgets]`)
	s.run(t, "dispatcher pool set").want(t, 2, "NAME is missing")
	for _, words := range []string{"show nosuch", "set nosuch --rate 1/s", "reset nosuch"} {
		s.run(t, "dispatcher pool "+words).want(t, 4, `unknown pool "nosuch": the buckets of the configuration are in vendor`)
	}
}

// A pool without a bucket in the configuration is shown, and so is one that only Redis knows.
func TestPoolsThatAreNotUsed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := poolSiteOn(t, server)
	s.run(t, "dispatcher bucket pause webhooks").want(t, 0) // so that Redis knows it
	other := &site{redis: s.redis, env: writeConfig(t, fmt.Sprintf("[redis]\nurl = %q\ntimeout = \"10s\"\n[[pools]]\nname = \"idle\"\nrate = \"5/s\"\n", server.URL())+bucketIn("alone"))}
	other.run(t, "dispatcher pool list").want(t, 0, "idle    5/s   0          -         not used yet; no bucket of the configuration names it",
		"vendor  1/h   0/7        webhooks  orphaned: not in the configuration")
	other.run(t, "dispatcher pool set vendor --rate 2/h").want(t, 0, "rate 1/h → 2/h")
	other.run(t, "dispatcher pool show vendor").want(t, 0, "differs    rate is 2/h, not 1/h: set ")
	other.run(t, "dispatcher pool set idle --rate 2/h").want(t, 4, `unknown pool "idle"`)
	newSite(t).run(t, "dispatcher pool list").want(t, 0, "there are no pools: declare one")
	newSite(t).run(t, "dispatcher pool list --json").want(t, 0, "[]")
	server.Kill()
	s.run(t, "dispatcher pool list").want(t, 5)
}

// A bucket that was given a pool stays where it is until a dispatcher moves it, and it is said so.
func TestBucketThatJoinsAPool(t *testing.T) {
	t.Parallel()
	s := poolSite(t)
	s.connected(t, nil, 1)
	s.enqueue(t, "webhooks", "a")
	const note = `it is in no pool, and the configuration here has it in pool "vendor": a dispatcher that starts with this configuration, or reloads it, moves it`
	s.run(t, "dispatcher bucket list").want(t, 0, `1/5`, note)
	s.run(t, "dispatcher bucket pause webhooks").want(t, 0, "paused: webhooks")
	s.run(t, "dispatcher job show webhooks a").want(t, 0, "queued", "paused")
	s.run(t, "dispatcher job cancel webhooks a").want(t, 0)
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "remembered  1 settled id", note)
	s.run(t, "dispatcher bucket resume webhooks").want(t, 0, "resumed: webhooks")
}

// The steps of a change of pool are said by config check, status and bucket list, what a dispatcher will do, that deliveries keep
// the bucket, and that it is on its way. The next process that uses it completes the move: here a producer.
func TestStepsOfAMoveAreShown(t *testing.T) {
	t.Parallel()
	s := poolSite(t)
	s.connected(t, nil, 1)
	s.enqueue(t, "webhooks", "a")
	old, now := stored.Key("webhooks", ""), stored.KeyIn("vendor", "webhooks", "")
	s.redis.ZAdd(t.Context(), old+"leases", redis.Z{Member: "other", Score: 9e15})
	if r := s.run(t, "dispatcher config check"); strings.Contains(r.out, "vendor") {
		t.Errorf("without --redis:\n%s", r.out)
	}
	s.run(t, "dispatcher config check --redis").want(t, 0, `bucket "webhooks": it is in no pool, and the configuration here has it in pool "vendor": a dispatcher that `+
		`starts with this configuration, or reloads it, moves it with 1 job and 0 dead letters, and the bucket sends nothing until its deliveries under way (1 now) have ended`)
	s.run(t, "dispatcher config check --redis --json").want(t, 0, `"bucket": "webhooks"`, `"refused": false`)
	till := s.redis.Time(t.Context()).Val().Add(time.Hour).UnixMicro()
	s.redis.HSet(t.Context(), old+"pace", "down", stored.Downstream{Till: till, Reason: "moves"}.String())
	const held = "changes its pool"
	s.run(t, "dispatcher bucket list").want(t, 0, held)
	s.run(t, "dispatcher status").want(t, 0, held)
	if r := s.run(t, "dispatcher status"); strings.Contains(r.out, "bucket release") {
		t.Errorf("a release is no help:\n%s", r.out)
	}
	s.redis.HDel(t.Context(), old+"pace", "down")
	s.redis.Rename(t.Context(), old+"settings", old+"parked_settings") // as lua/relocate.lua leaves it
	s.redis.HSet(t.Context(), old+"settings", "generation", "1", "left_for", "vendor")
	s.redis.HSet(t.Context(), now+"settings", "generation", "1", "carried", "12")
	const moves = `it moves from no pool to pool "vendor", and 12 keys moved so far`
	s.run(t, "dispatcher bucket list").want(t, 0, moves)
	s.run(t, "dispatcher status").want(t, 0, moves)
	s.enqueue(t, "webhooks", "b")
	must.Equal(t, s.redis.HGet(t.Context(), "tundish:buckets", "webhooks").Val(), "vendor", "the bucket has the tag")
	must.Equal(t, s.redis.HLen(t.Context(), now+"body").Val(), 2, "jobs")
	if s.redis.HExists(t.Context(), now+"settings", "carried").Val() {
		t.Error("the count of keys is left")
	}
}

// A producer takes jobs in where the bucket is, and brings it nowhere. A dispatcher brings the bucket into its pool, with its jobs.
func TestDaemonsOfABucketThatJoinsAPool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := &site{redis: server.Client()}
	s.connected(t, nil, 1)
	s.own.DedupeWindow = 0
	must.OK(t, s.client.Reconfigure([]shaper.Bucket{s.own}))
	s.enqueue(t, "webhooks", "a")
	p := newPlan(t, server.URL(), "rate = \"100/s\"\npool = \"vendor\"\n")
	p.rewrite(t, func(text string) string { return text + poolTable })
	producer := start(t, p.env, "producer serve")
	producer.ready(t, p.api)
	eventually(t, "the producer warns", func() bool {
		return producer.said("the settings of this process are not those in force") && producer.said(`pool pool \"vendor\" here, no pool in force`)
	})
	command(t.Context(), p.env, "1\n", "producer send webhooks --url http://127.0.0.1:1").want(t, 0, "1 job")
	ids := s.redis.HKeys(t.Context(), stored.Key("webhooks", "body")).Val()
	must.Equal(t, len(ids), 2, "in the bucket are %q", ids)
	must.Equal(t, producer.end(), 0, "the producer: the exit code is")
	daemon := start(t, p.env, "dispatcher run")
	eventually(t, "the dispatcher brings the bucket there", func() bool { return s.redis.HGet(t.Context(), "tundish:buckets", "webhooks").Val() == "vendor" })
	must.Equal(t, s.redis.Exists(t.Context(), stored.Key("webhooks", "body")).Val(), 0, "jobs are left where nobody looks")
	must.Equal(t, daemon.end(), 0, "the dispatcher: the exit code is")
}

// The settings of a pool, and who is in it, can change under daemons that run.
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
	eventually(t, "it leaves the pool with its jobs, which waited at 1/h", func() bool { return to.count() == 4 })
	eventually(t, "applied by the producer, which moves nothing", func() bool { return producer.said("configuration reloaded") })
	p.rewrite(t, func(text string) string {
		return strings.NewReplacer(`"1/h"`, `"100/s"`, "rate = \"100/s\"\n", "rate = \"100/s\"\npool = \"vendor\"\nweight = 9\n").Replace(text)
	})
	eventually(t, "applied", func() bool { return dispatcher.said(`buckets \"webhooks\".weight, pools \"vendor\".rate`) })
	eventually(t, "applied by the producer", func() bool { return producer.said(`pools \"vendor\".rate`) })
	command(t.Context(), p.env, "5\n6\n", "producer send webhooks --url "+to.URL).want(t, 0, "2 jobs in")
	eventually(t, "it is back in the pool, whose new rate holds", func() bool { return to.count() == 6 })
	must.Equal(t, [2]int{producer.end(), dispatcher.end()}, [2]int{}, "the exit codes are")
}

// A closed bucket tells when it opens, at which rate and by when it is to finish, and its pool says why it sends nothing.
func TestClosedBucketOfAPool(t *testing.T) {
	t.Parallel()
	s := poolSite(t)
	s.own = bucket(t, "webhooks")
	s.own.Rate, s.own.Pool, s.own.Weight = admission.Rate{Count: 4, Per: time.Minute, Unit: admission.UnitRequests}, &shaper.Pool{Name: "vendor", Rate: s.own.Rate}, 3
	s.own.Drain = &schedule.Drain{Cron: fmt.Sprintf("0 %d * * *", (time.Now().UTC().Hour()+12)%24), For: 4 * time.Hour, FinishBy: "3h"}
	var err error
	if s.client, err = producer.New(producer.Config{Redis: s.redis, Buckets: []shaper.Bucket{s.own}, Timeout: patience}); err != nil {
		t.Fatal(err)
	}
	s.enqueue(t, "webhooks", "a")
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "hours       closed: opens in 1", ", at 8", "/d", "finish      1 job by ")
	s.run(t, "dispatcher pool show vendor").want(t, 0, "webhooks: weight 3, 0 in flight, 1 waiting, closed: opens in 1")
	s.run(t, "dispatcher bucket pause webhooks").want(t, 0)
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, ", and paused", "; none leaves while the bucket is paused")
	s.run(t, "dispatcher pool show vendor").want(t, 0, "webhooks: weight 3, 0 in flight, 1 waiting, paused")
}
