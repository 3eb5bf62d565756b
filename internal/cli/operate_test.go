package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// site is a Redis with a bucket "webhooks" of capacity 5 and a bucket "gone"
// that left the configuration with a job in it.
type site struct {
	url      string
	env      []string
	redis    redis.UniversalClient
	client   *producer.Client
	operator *operator.Operator
	own      shaper.Bucket // "webhooks" as the client has it
}

func newSite(t *testing.T) *site {
	t.Helper()
	server := redistest.Start(t)
	s := &site{url: server.URL(), env: writeConfig(t, fmt.Sprintf(`
[redis]
url = %q
timeout = "10s"
[[buckets]]
name = "webhooks"
rate = "50/s"
capacity = 5
shed = { low = 100, normal = 100, high = 100 }
`, server.URL()))}
	s.redis, s.own = server.Client(), bucket(t, "webhooks")
	var err error
	s.client = must.Get(producer.New(producer.Config{Redis: s.redis, Buckets: []shaper.Bucket{s.own, bucket(t, "gone")}, Timeout: patience}))(t)
	if s.operator, err = operator.New(operator.Config{Redis: s.redis, Buckets: []shaper.Bucket{s.own}, Timeout: patience}); err != nil {
		t.Fatal(err)
	}
	return s
}

func bucket(t *testing.T, name string) shaper.Bucket {
	t.Helper()
	b := shaper.DefaultBucket()
	b.DeliveryTimeout = 15 * time.Second // as of the configurations here
	b.Name, b.Capacity, b.Shed = name, 5, shaper.NoShedding
	rate := must.Get(admission.ParseRate("50/s"))(t)
	b.Rate = rate
	return b
}

func (s *site) enqueue(t *testing.T, bucket string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		receipts, err := s.client.Enqueue(t.Context(), shaper.Job{Bucket: bucket, ID: id, Payload: []byte(`{"n":1}`), URL: "https://example.com/"})
		if err != nil || receipts[0].Refusal != nil {
			t.Fatalf("enqueue %s: %+v, %v", id, receipts, err)
		}
	}
}

// deliver has a worker deliver all jobs of "webhooks", until as many as n ended.
func (s *site) deliver(t *testing.T, n int, outcome shaper.Outcome) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var mu sync.Mutex
	worker := shaper.WorkerFunc(func(_ context.Context, attempt *shaper.Attempt) shaper.Outcome {
		if attempt.Depart() != nil {
			return shaper.Returned("late")
		}
		mu.Lock()
		defer mu.Unlock()
		if n--; n == 0 {
			stop()
		}
		return outcome
	})
	own := s.own
	own.PermitTTL = shaper.MaxPermitTTL // a slot that a busy machine wastes counts for a quota
	dispatcher := must.Get(dispatcher.New(dispatcher.Config{
		Redis: s.redis, Buckets: []shaper.Bucket{own}, Timeout: patience, Workers: map[string]shaper.Worker{s.own.Name: worker},
	}))(t)
	must.OK(t, dispatcher.Run(ctx))
}

// depart notes departures of now, as a claim does: a delivery that a busy machine makes late would use up one more of a quota.
func (s *site) depart(t *testing.T, key string, n int) {
	t.Helper()
	now := must.Get(s.redis.Time(t.Context()).Result())(t)
	for range n {
		must.OK(t, s.redis.LPush(t.Context(), key, now.UnixMicro()).Err())
	}
}

func (s *site) run(t *testing.T, words string) result {
	t.Helper()
	return command(t.Context(), s.env, "", words)
}

func TestBuckets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run(t, "dispatcher bucket list").want(t, 0, "webhooks", "0/5", "not used yet")
	s.enqueue(t, "webhooks", "a", "b", "c", "d", "e")
	s.enqueue(t, "gone", "f")

	list := s.run(t, "dispatcher bucket list")
	list.want(t, 0, "BUCKET", "full", "orphaned: not in the configuration, no dispatcher delivers its jobs")
	if webhooks, gone := strings.Index(list.out, "webhooks"), strings.Index(list.out, "gone"); webhooks > gone {
		t.Errorf("the orphaned bucket comes first:\n%s", list.out)
	}
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "5 of 5", "(empty: unknown: no dispatcher runs)", "50/s, burst 1")
	s.run(t, "dispatcher bucket show gone").want(t, 0, "orphaned")
	s.run(t, "dispatcher bucket show nosuch").want(t, 4, `unknown bucket "nosuch": the configuration has webhooks`)

	var views []struct {
		Name       string
		Unfinished int
		Orphaned   bool
	}
	asJSON := s.run(t, "dispatcher bucket list --json")
	if err := json.Unmarshal([]byte(asJSON.out), &views); err != nil || len(views) != 2 || views[0].Unfinished != 5 || !views[1].Orphaned {
		t.Errorf("--json = %v, %+v\n%s", err, views, asJSON.out)
	}
}

// A bucket of a program with its own workers is not in the configuration here. It is no orphan while its jobs leave. Once none has left for
// a while, it says whose it was.
func TestBucketOfAProgram(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	configured := s.own
	s.own = bucket(t, "gone")
	s.enqueue(t, "gone", "a")
	s.deliver(t, 1, shaper.Done(200))
	s.own = configured
	for _, words := range []string{"dispatcher bucket list", "dispatcher bucket show gone"} {
		shown := s.run(t, words)
		shown.want(t, 0, "declared by "+redisconn.ProcessName()+", not by the configuration here, as is normal for a bucket of a Go program: its last job left ")
		if strings.Contains(shown.out, "orphaned") {
			t.Errorf("%s calls it orphaned:\n%s", words, shown.out)
		}
	}
	s.run(t, "dispatcher bucket show gone --json").want(t, 0, `"orphaned": true`, `"delivered_elsewhere": true`)
	s.enqueue(t, "gone", "b")
	keys := s.redis.Keys(t.Context(), "*:b:gone:pace").Val()
	must.Be(t, len(keys), 1, "its pace is in %q", keys)
	s.redis.HSet(t.Context(), keys[0], "slot", time.Now().Add(-2*time.Minute).UnixMicro())
	idle := s.run(t, "dispatcher bucket list")
	idle.want(t, 0, "declared by "+redisconn.ProcessName()+", not by the configuration here, and no job left it lately: if that program runs no longer, the bucket is orphaned, and no dispatcher delivers its jobs")
	idle.lacks(t, "orphaned: ") // it is so only if the program has ended
}

// What is left of each quota is shown, and which one holds the bucket, and its next job, until when.
func TestQuotasAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.own.Quotas = []admission.Rate{{Count: 2, Per: time.Hour, Unit: admission.UnitRequests}, {Count: 9, Per: 24 * time.Hour, Unit: admission.UnitRequests}}
	var err error
	if s.client, err = producer.New(producer.Config{Redis: s.redis, Buckets: []shaper.Bucket{s.own}, Timeout: patience}); err != nil {
		t.Fatal(err)
	}
	s.enqueue(t, "webhooks", "c")
	s.depart(t, stored.Key("webhooks", "departed"), 2)
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "2/h: 2 used, 0 left, nothing leaves before ", "9/d: 2 used, 7 left")
	s.run(t, "dispatcher bucket list").want(t, 0, "no dispatcher runs")
	s.run(t, "dispatcher bucket show webhooks --json").want(t, 0, `"quota_use": [`, `"quota": "2/h"`, `"left": 7`, `"held_until": "`)
	s.run(t, "dispatcher job show webhooks c").want(t, 0, `as many have left as its quota of 2/h allows bucket "webhooks"; it is free again at `)
}

// Commands take ids of any visible characters.
func TestJobsOfVisibleIDs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := []string{"partition:1/offset:24", "100%", "a.b+c==", "a%2Fb?x#y"}
	s.enqueue(t, "webhooks", ids...)
	for _, id := range ids {
		s.run(t, "dispatcher job show webhooks "+id).want(t, 0, "queued", id)
		s.run(t, "dispatcher job cancel webhooks "+id).want(t, 0, "cancelled "+id)
	}
	s.enqueue(t, "webhooks", "dead:1/2")
	s.deliver(t, 1, shaper.Dead("http_404", ""))
	s.run(t, "dispatcher dead show webhooks dead:1/2").want(t, 0, "dead:1/2")
	s.run(t, "dispatcher dead redrive webhooks dead:1/2").want(t, 0)
	s.run(t, "dispatcher job find dead:1/2").want(t, 0, "queued")
}

func TestJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "a", "b")
	s.run(t, "dispatcher job show webhooks b").want(t, 0, "queued", "position  1", "https://example.com/", `{"n":1}`)
	s.run(t, "dispatcher job show webhooks b --json").want(t, 0, `"position": 1`, `"n": 1`)
	s.run(t, "dispatcher job show webhooks nosuch").want(t, 4, `no such job: "nosuch"`)

	s.run(t, "dispatcher job cancel webhooks b").want(t, 0, "cancelled b")
	s.run(t, "dispatcher job cancel webhooks b --json").want(t, 0, `"state": "cancelled"`)
	s.run(t, "dispatcher job cancel webhooks nosuch").want(t, 4)
	s.deliver(t, 1, shaper.Done(200))
	s.run(t, "dispatcher job cancel webhooks a").want(t, 1, `job "a" in bucket "webhooks" is not cancelled: it is done`)
	s.run(t, "dispatcher job show webhooks a").want(t, 0, "done")
}

// A job that an operator put back is shown as it is now. That it was dead is told as what was before.
func TestRedrivenJob(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "a")
	s.deliver(t, 1, shaper.Dead("http_410", "Gone"))
	s.run(t, "dispatcher job show webhooks a").want(t, 0, "dead because")
	s.run(t, "dispatcher dead redrive webhooks a").want(t, 0, "redriven: 1 job")
	shows := func(texts ...string) {
		t.Helper()
		shown := s.run(t, "dispatcher job show webhooks a")
		shown.want(t, 0, texts...)
		for _, untrue := range []string{"dead because", "no attempt: held"} {
			if strings.Contains(shown.out, untrue) {
				t.Errorf("a job that is not dead and lost no delivery is shown with %q:\n%s", untrue, shown.out)
			}
		}
	}
	shows("queued", "it was dead: permanent, after 1 delivery; an operator put it back, with a fresh budget of attempts. The last response below is from before the redrive", "http_410")
	s.run(t, "dispatcher job show webhooks a --json").want(t, 0, `"before_redrive": {`, `"deliveries": 1`, `"cause": "permanent"`)
	s.deliver(t, 1, shaper.Retry("http_503", "try later"))
	shows("retrying", "it was dead, after 1 delivery; an operator put it back, with a fresh budget of attempts\n", "http_503")
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run(t, "dispatcher dead list webhooks").want(t, 0, "0 dead letters")
	s.run(t, "dispatcher dead list webhooks --json").want(t, 0, "[]")
	s.enqueue(t, "webhooks", "a", "b", "c", "d")
	s.deliver(t, 4, shaper.Dead("http_410", "the receiver said \x1b[31mGone"))

	s.run(t, "dispatcher dead list webhooks").want(t, 0, "http_410", "the receiver said  [31mGone")
	page := s.run(t, "dispatcher dead list webhooks --limit 1 --offset 1")
	page.want(t, 0, "2 more: --offset 2")
	must.Equal(t, strings.Count(page.out, "\n"), 2, "a page of one has lines:\n%s", page.out)
	s.run(t, "dispatcher dead show webhooks a").want(t, 0, "dead because", "http_410", `{"n":1}`)
	s.run(t, "dispatcher dead show webhooks a").want(t, 0, "attempt 1", "dead, http_410, took ")
	s.run(t, "dispatcher dead show webhooks a --json").want(t, 0, `"last_attempts"`, `"number": 1`, `"result": "dead"`, `"took_seconds"`)
	s.run(t, "dispatcher dead show webhooks nosuch").want(t, 4)
	s.run(t, "dispatcher job cancel webhooks a").want(t, 1, "it is dead", "dead drop")

	s.run(t, "dispatcher dead redrive webhooks a nosuch").want(t, 4, "redriven: 1 job", "1 of the ids")
	s.run(t, "dispatcher dead show webhooks a").want(t, 4, "is no dead letter: it is queued")
	s.run(t, "dispatcher dead redrive webhooks --all --limit 1 --json").want(t, 0, `"moved": 1`)
	s.enqueue(t, "webhooks", "e", "f", "g")
	s.run(t, "dispatcher dead redrive webhooks --all --no-wait").want(t, 3, "redriven: 0 jobs", `bucket "webhooks" is full`)
	s.run(t, "dispatcher dead redrive webhooks --all --limit 1").want(t, 3, "redriven: 0 jobs", `bucket "webhooks" is full`)
	s.run(t, "dispatcher dead redrive webhooks b --no-wait").want(t, 2, "ids never wait")

	s.run(t, "dispatcher dead drop webhooks a").want(t, 1, "dropped: 0 dead letters", `"a" is no dead letter: it is queued`)
	s.run(t, "dispatcher dead drop webhooks nosuch").want(t, 4, `"nosuch" is unknown`)
	s.run(t, "dispatcher dead drop webhooks --all").want(t, 2, "--yes")
	s.run(t, "dispatcher dead drop nosuch --all --yes").want(t, 4)
	s.run(t, "dispatcher dead drop webhooks --all --yes").want(t, 0, "dropped: 2 dead letters")
	s.run(t, "dispatcher dead list webhooks").want(t, 0, "0 dead letters")
}
