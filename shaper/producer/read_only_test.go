package producer_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// dispatched writes buckets as a dispatcher does that starts.
func dispatched(t *testing.T, conn redis.UniversalClient, buckets ...shaper.Bucket) {
	t.Helper()
	s := must.Get(store.New(store.Authoritative, conn, buckets, 0, nil, nil))(t)
	must.OK(t, s.JoinPools(t.Context()))
}

// readOnly is a client of buckets, and what it logs.
func readOnly(t *testing.T, conn redis.UniversalClient, buckets ...shaper.Bucket) (*producer.Client, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	c := must.Get(producer.New(producer.Config{Timeout: rig.Patience, Redis: conn, Buckets: buckets, Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
	t.Cleanup(c.Close)
	return c, &log
}

// settingsOf are the settings of a bucket, with who wrote them.
func settingsOf(t *testing.T, conn redis.UniversalClient, tag string) map[string]string {
	t.Helper()
	fields := conn.HGetAll(t.Context(), store.TaggedKeys(tag, "b").Conf()).Val()
	return fields
}

// A client that starts with other settings than a dispatcher wrote changes none of them, nor those of a pool or schedules. It goes by
// those in force, and says once where its own differ.
func TestClientChangesNoSettings(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		pool := shaper.Pool{Name: "vendor", Rate: rig.Rate("40/s")}
		is := rig.In(&pool, rig.Bucket("b", 20))
		is.MaxPayload, is.Capacity = 8, 2
		is.Limits = []admission.Limit{{Name: "l", Limit: rig.Rate("5/744h")}}
		is.Schedules = []shaper.Schedule{{Name: "s", Cron: "@hourly", Timezone: "UTC"}}
		dispatched(t, conn, is)
		before := fmt.Sprint(settingsOf(t, conn, "vendor"), conn.HGetAll(t.Context(), store.PoolConf("vendor")).Val(), conn.HGet(t.Context(), store.TaggedKeys("vendor", "b").Schedules(), "s").Val())

		faster := pool
		faster.Rate = rig.Rate("4000/s")
		mine := rig.In(&faster, rig.Bucket("b", 2000))
		mine.Revision = 7 // counts for dispatchers alone
		c, log := readOnly(t, conn, mine)
		job := func(payload string) error {
			receipts, err := c.Enqueue(t.Context(), shaper.Job{Bucket: "b", Payload: []byte(payload)})
			if err == nil && receipts[0].Refusal != nil {
				err = errors.New(string(receipts[0].Refusal.Reason))
			}
			return err
		}
		if err := job("too long a text"); err == nil || !strings.Contains(err.Error(), "payload") {
			t.Errorf("a payload above the bound in force: %v", err)
		}
		if err := errors.Join(job("x"), job("x")); err != nil {
			t.Error(err)
		}
		if err := job("x"); err == nil || err.Error() != string(shaper.ReasonBucketFull) {
			t.Errorf("a job above the capacity in force: %v", err)
		}
		if settings, err := c.Bucket("b"); err != nil || settings.Rate != is.Rate || settings.Pool.Rate != pool.Rate || settings.MaxPayload != 8 {
			t.Errorf("the client goes by %+v, %v", settings, err)
		}
		if after := fmt.Sprint(settingsOf(t, conn, "vendor"), conn.HGetAll(t.Context(), store.PoolConf("vendor")).Val(), conn.HGet(t.Context(), store.TaggedKeys("vendor", "b").Schedules(), "s").Val()); after != before {
			t.Errorf("before\n%s\nafter\n%s", before, after)
		}
		for _, part := range []string{"rate 2000/s here, 20/s in force", "pool.rate 4000/s here, 40/s in force", "capacity 10000 here, 2 in force", "max_payload 262144 here, 8 in force", "limits [] here"} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("not logged: %s\n%s", part, log)
			}
		}
		must.Equal(t, strings.Count(log.String(), "are not those in force"), 1, "warned times:\n%s", log)
	})
}

// A client needs the name of a bucket only, once a dispatcher has the rest in Redis: the pool, what names flows and groups, and callbacks.
func TestClientWithANameOnly(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		named := shaper.Bucket{Name: "b"}
		c, _ := readOnly(t, conn, named)
		job := shaper.Job{Bucket: "b", Payload: []byte("x"), URL: "https://example.com/a", Identity: admission.Identity{Headers: map[string]string{"X-Tenant": "acme"}}}
		if _, err := c.Enqueue(t.Context(), job); !errors.Is(err, shaper.ErrUnknownBucket) || !strings.Contains(err.Error(), "start a dispatcher") {
			t.Errorf("nothing is there: %v", err)
		}
		must.Equal(t, conn.DBSize(t.Context()).Val(), 0, "it made keys")
		is := rig.In(rig.PoolNamed("vendor"), rig.Grouped("b", 10))
		is.Flow.Key, is.Group.Key, is.Flow.DefaultURL = shaper.FlowKeyHost, "header:x-tenant", "https://default.example/"
		is.Callbacks = shaper.Callbacks{Bucket: "told", Origins: []string{"https://told.example"}}
		dispatched(t, conn, is)
		receipts, err := c.Enqueue(t.Context(), job)
		if err != nil || receipts[0].Refusal != nil || receipts[0].Flow != "example.com:443" && receipts[0].Flow != "example.com" || receipts[0].Group != "acme" {
			t.Errorf("%+v, %v", receipts, err)
		}
		job.URL = ""
		if receipts, err = c.Enqueue(t.Context(), job); err != nil || !strings.HasPrefix(receipts[0].Flow, "default.example") {
			t.Errorf("without a URL: %+v, %v", receipts, err)
		}
		job.CallbackURL = "https://told.example/"
		if receipts, err = c.Enqueue(t.Context(), job); err != nil || receipts[0].Refusal != nil {
			t.Errorf("with a callback: %+v, %v", receipts, err)
		}
		must.Equal(t, fmt.Sprint(c.LimitHeaders("b")), "[X-Tenant]", "it needs the headers")
		if info, err := c.Job(t.Context(), "b", receipts[0].ID); err != nil || info.Group != "acme" || info.OfPool == nil {
			t.Errorf("%+v, %v", info, err)
		}
		if state, err := c.Cancel(t.Context(), "b", receipts[0].ID); err != nil || state != shaper.StateCancelled {
			t.Errorf("%s, %v", state, err)
		}
	})
}

// What a client makes is marked, and a dispatcher that starts replaces it, whatever the revision of the client. Then the client, which
// runs on, goes by what is in force, also in another pool and with other flows.
func TestDispatcherReplacesWhatAClientMade(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		old := rig.Bucket("b", 2000)
		old.Revision, old.DedupeWindow = 9, 0
		c, log := readOnly(t, conn, old)
		enqueue := func() (shaper.Receipt, error) {
			receipts, err := c.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "j", Flow: "f", Payload: []byte("x")})
			if err != nil {
				return shaper.Receipt{}, err
			}
			_, err = c.Cancel(t.Context(), "b", "j")
			return receipts[0], err
		}
		if r, err := enqueue(); err != nil || r.Refusal != nil {
			t.Fatal(r, err)
		}
		if made := settingsOf(t, conn, "b"); made["owned"] != "0" || made["rate_count"] != "2000" || made["by"] == "" {
			t.Errorf("made is %v", made)
		}
		is := rig.In(rig.PoolNamed("vendor"), rig.Flowing("b", shaper.FlowKeyJob))
		dispatched(t, conn, is)
		if now := settingsOf(t, conn, "vendor"); now["owned"] != "1" || now["rate_count"] != "1" || now["revision"] != "0" {
			t.Errorf("after the dispatcher: %v", now)
		}
		// The first call may have been named for the bucket of before.
		r, err := enqueue()
		if errors.Is(err, shaper.ErrTagChanged) {
			r, err = enqueue()
		}
		if err != nil || r.Flow != "f" || conn.HLen(t.Context(), store.TaggedKeys("vendor", "b").Seen()).Val()+conn.HLen(t.Context(), store.TaggedKeys("vendor", "b").Flows()).Val() == 0 {
			t.Errorf("after the dispatcher: %+v, %v", r, err)
		}
		if !strings.Contains(log.String(), "flow and group neither here, flow in force") || !strings.Contains(log.String(), `pool no pool here, pool \"vendor\" in force`) {
			t.Errorf("logged is\n%s", log)
		}
	})
}
