package test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// newDump is the file of testdata to which the test writes what the program stores today: run `go test ./test -run TestStoredData -args
// -stored stored-0.1.0.json`. A dump of a released version is never written again, because it is the data of users: a later version with another
// stored shape adds a file.
var newDump = flag.String("stored", "", "write a dump of all stored shapes to this file of testdata, as stored-0.1.0.json")

// dump is all that one program has left in Redis: one value of each shape, and what became of each job.
type dump struct {
	At    time.Duration     // since the bubble began
	Fates map[string]string // by "bucket/id": done, dead, cancelled, dropped, or waits: it is to be delivered

	Charged []int64 // to the budgets of the bucket "tokens", of one of its flows, and of its pool

	Keys map[string]*storedAsText // all of them
}

// storedAsText is one key. A sorted set has its scores as texts.
type storedAsText struct {
	Hash    map[string]string `json:",omitempty"`
	List    []string          `json:",omitempty"`
	Sorted  map[string]string `json:",omitempty"`
	Text    string            `json:",omitempty"`
	Expires time.Duration     `json:",omitempty"`
}

// TestStoredData: this program takes over what 0.1.0 and each later version stored, of every shape, as if its process was killed. It delivers each
// job that waited or was in flight, no job that had ended, and obeys what operators have set.
func TestStoredData(t *testing.T) {
	t.Parallel()
	if *newDump != "" {
		synctest.Test(t, func(t *testing.T) { writeDump(t, filepath.Join("testdata", *newDump)) })
	}
	files, err := filepath.Glob("testdata/stored-*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no dumps: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { takeOver(t, file) })
		})
	}
}

// storedBuckets are buckets of every kind.
func storedBuckets() []shaper.Bucket {
	perSecond := func(n int64) admission.Rate {
		return admission.Rate{Count: n, Per: time.Second, Unit: admission.UnitRequests}
	}
	bucket := func(name string) shaper.Bucket {
		b := shaper.DefaultBucket()
		b.Name, b.Rate, b.DedupeWindow = name, perSecond(20), 24*time.Hour
		b.Quotas = []admission.Rate{{Count: 10_000, Per: 24 * time.Hour, Unit: admission.UnitRequests}}
		b.Retry.MaxBackoff = 10 * time.Minute
		b.Breaker.OnGone, b.Events = shaper.GoneDisables, shaper.Events()
		return b
	}
	flow, group := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
	flow.Key, group.Key = shaper.FlowKeyJob, shaper.FlowKeyJob
	flow.Rate, group.Rate = perSecond(5), perSecond(10)
	flow.Quotas, group.Quotas = bucket("").Quotas, bucket("").Quotas
	plain, flows, groups, a, b := bucket("plain"), bucket("flows"), bucket("groups"), bucket("a"), bucket("b")
	plain.Limits = []admission.Limit{{Name: "per-caller", Algorithm: admission.TokenBucket, Limit: perSecond(50), Per: []string{admission.PerCaller}}}
	flows.Flow, groups.Flow, groups.Group = &flow, &flow, &group
	pool := shaper.Pool{Name: "pool", Rate: perSecond(20), MaxInFlight: 8, Quotas: bucket("").Quotas}
	a.Pool, b.Pool, a.Weight, b.Adapt.Scope = &pool, &pool, 3, shaper.ScopePool
	plain.Results.Retention = 24 * time.Hour
	flows.Callbacks = shaper.Callbacks{Bucket: "plain", URL: "https://told.example"}
	hours, batches := bucket("hours"), bucket("batches")
	hours.Drain = &schedule.Drain{Cron: "*/2 * * * *", For: time.Minute}
	batches.Batch = shaper.BatchSettings{MaxSize: 5, MaxBytes: 1 << 16}
	batches.Calendar = []shaper.CalendarLine{{From: "00:00", To: "12:00", Rate: perSecond(25)}}
	tokens, perDay := bucket("tokens"), shaper.Budgets{{Count: 100_000, Per: 24 * time.Hour, Unit: shaper.UnitTokens}}
	ofTokens := shaper.DefaultFlowSettings()
	ofTokens.Key, ofTokens.Budgets, tokens.Budgets = shaper.FlowKeyJob, perDay, perDay
	tokens.Flow, tokens.Pool = &ofTokens, &shaper.Pool{Name: "provider", Rate: perSecond(20), Budgets: perDay}
	return []shaper.Bucket{plain, flows, groups, a, b, hours, batches, tokens}
}

// storedWorker delivers the jobs of a batch one by one.
type storedWorker func(a *shaper.Attempt) shaper.Outcome

func (w storedWorker) Deliver(_ context.Context, a *shaper.Attempt) shaper.Outcome {
	if a.Depart() != nil {
		return shaper.Returned("late")
	}
	return w(a)
}

func (w storedWorker) DeliverBatch(_ context.Context, b *shaper.Batch) (outcomes []shaper.Outcome) {
	late := b.Depart() != nil
	for _, a := range b.Attempts {
		if late {
			outcomes = append(outcomes, shaper.Returned("late"))
		} else {
			outcomes = append(outcomes, w(a))
		}
	}
	return outcomes
}

// actors are those of one process, on one store in the bubble.
type actors struct {
	redis    *redis.Client
	producer *producer.Client
	operator *operator.Operator
	run      func(context.Context) error
}

// newActors tells hooks of all events by enqueue, where that is not nil.
func newActors(t *testing.T, store *miniredis.Miniredis, worker shaper.Worker, enqueue func(context.Context, ...shaper.Job) ([]shaper.Receipt, error)) actors {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return redistest.WithRoom(store.Dial()) },
		MaxRetries:               -1,
		Protocol:                 2,
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
		ConnMaxIdleTime:          -1, // its clock is not that of the bubble
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	buckets, workers := storedBuckets(), map[string]shaper.Worker{}
	for _, b := range buckets {
		workers[b.Name] = worker
	}
	p, err := producer.New(producer.Config{Redis: client, Buckets: buckets})
	if err != nil {
		t.Fatal(err)
	}
	o, err := operator.New(operator.Config{Redis: client, Buckets: buckets})
	if err != nil {
		t.Fatal(err)
	}
	config := dispatcher.Config{Redis: client, Buckets: buckets, Workers: workers, Enqueue: enqueue}
	if enqueue != nil {
		config.Hooks = []dispatcher.Hook{{Events: shaper.Events(), Bucket: "plain", URL: "https://ops.example"}}
	}
	d, err := dispatcher.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return actors{redis: client, producer: p, operator: o, run: d.Run}
}

// storedJob is the job of an id that says what becomes of it.
func storedJob(bucket, id string) shaper.Job {
	job := shaper.Job{Bucket: bucket, ID: id, Payload: []byte(`{"of":"` + id + `"}`), Identity: admission.Identity{Caller: "anna"}}
	if bucket == "flows" || bucket == "groups" || bucket == "tokens" {
		job.Flow = "f-" + strings.TrimRight(id, "0123456789")
	}
	if bucket == "groups" {
		job.Group = "g"
	}
	if bucket == "tokens" {
		job.Units = shaper.Units{shaper.UnitInput: 20, shaper.UnitOutput: 100}
	}
	if bucket == "batches" { // jobs of one kind leave together
		job.URL = "https://" + strings.TrimRight(id, "0123456789") + ".example"
	}
	return job
}

// chargedTokens is what is charged to the budgets of the bucket "tokens", of the flow "f-hang", which has budgets of its own, and of the pool.
func chargedTokens(t *testing.T, all actors) []int64 {
	t.Helper()
	bucket, err := all.operator.Bucket("tokens").Info(t.Context())
	if err != nil || len(bucket.Budgets) != 1 || bucket.Pool == nil || len(bucket.Pool.Budgets) != 1 {
		t.Fatalf("%+v: %v", bucket, err)
	}
	job, err := all.operator.Bucket("tokens").Job("hang1").Info(t.Context())
	if err != nil || job.OfFlow == nil || len(job.OfFlow.Budgets) != 1 || job.OfFlow.Budgets[0].Budget.Count != 50_000 {
		t.Fatalf("%+v: %v", job.OfFlow, err)
	}
	return []int64{bucket.Budgets[0].Charged, job.OfFlow.Budgets[0].Charged, bucket.Pool.Budgets[0].Charged}
}

// bubbleBegan is the first instant of any bubble.
var bubbleBegan = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func newBubbleStore(t *testing.T) *miniredis.Miniredis {
	store := miniredis.NewMiniRedis()
	store.ClockTTL(true)
	t.Cleanup(store.Close)
	return store
}

// takeOver starts this program on a dump.
func takeOver(t *testing.T, file string) {
	var d dump
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(d.At) // in a bubble: no time passes
	var mu sync.Mutex
	delivered, heard := map[string]int{}, []string(nil)
	store := newBubbleStore(t)
	all := newActors(t, store, storedWorker(func(a *shaper.Attempt) shaper.Outcome {
		if a.ID == "headers1" && !slices.Equal(a.Headers["X-Of"], []string{"b", "c"}) {
			t.Errorf("%s/%s came with the headers %v", a.Bucket, a.ID, a.Headers)
		}
		mu.Lock()
		defer mu.Unlock()
		delivered[a.Bucket+"/"+a.ID]++
		if of := strings.TrimRight(a.ID, "0123456789"); !strings.Contains(string(a.Payload), of) && !strings.Contains(string(a.Payload), `"made"`) {
			t.Errorf("%s came with %s", a.ID, a.Payload)
		}
		return shaper.Done(200)
	}), func(_ context.Context, jobs ...shaper.Job) ([]shaper.Receipt, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, job := range jobs {
			heard = append(heard, string(job.Payload))
		}
		return make([]shaper.Receipt, len(jobs)), nil
	})
	writeKeys(t, all.redis, d.Keys)

	ctx, op := t.Context(), all.operator.As("bert")
	wantEnded(t, all.producer, d.Fates)
	if charged := chargedTokens(t, all); !slices.Equal(charged, d.Charged) {
		t.Errorf("charged %v, want %v", charged, d.Charged)
	}
	running, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- all.run(running) }()
	time.Sleep(time.Minute) // nor here
	for job, fate := range d.Fates {
		bucket, id, _ := strings.Cut(job, "/")
		if info, err := all.operator.Bucket(bucket).Job(id).Info(ctx); err != nil || fate != "waits" && string(info.State) != fate {
			t.Errorf("%s is %q: %v", job, info.State, err)
		}
	}
	for _, b := range storedBuckets() {
		info, err := all.operator.Bucket(b.Name).Info(ctx)
		if err != nil || info.Pause == nil || info.Pause.By != "anna" || info.Pause.Reason == "" || info.Rate.Count != 30 {
			t.Errorf("bucket %q: paused %+v, rate %v: %v", b.Name, info.Pause, info.Rate, err)
		}
		if _, err := op.Bucket(b.Name).Resume(ctx); err != nil {
			t.Error(err)
		}
	}
	for _, flow := range []operator.Flow{op.Bucket("flows").Flow("f-wait-low"), op.Bucket("groups").Group("g").Flow("f-wait-low")} {
		info, err := flow.Info(ctx)
		if err != nil || info.Own.Pause == nil || info.Own.Rate.Count != 7 {
			t.Errorf("a flow has of its own %+v: %v", info.Own, err)
		}
		if _, err := flow.Resume(ctx); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(5 * time.Minute) // nor here
	redriven, err := op.Bucket("plain").Dead().Redrive(ctx, "dead1")
	if err != nil || redriven.Moved != 1 {
		t.Errorf("redriven %+v: %v", redriven, err)
	}
	time.Sleep(time.Minute) // nor here
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	want := map[string]int{"plain/dead1": 1}
	for job, fate := range d.Fates {
		if fate == "waits" {
			want[job] = 1
		}
	}
	if diff := cmp.Diff(want, delivered); diff != "" {
		t.Errorf("wanted (-) and delivered (+), by job: %s", diff)
	}
	wantNews(t, all, heard)
	wantAnswers(t, all, heard)
	wantHours(t, all)
	for _, b := range storedBuckets() {
		info, err := all.operator.Bucket(b.Name).Info(ctx)
		if dead := int64(len(d.Fates)); err != nil || info.Unfinished != 0 || info.InFlight != 0 || info.Dead > dead {
			t.Errorf("bucket %q has %d unfinished, %d in flight: %v", b.Name, info.Unfinished, info.InFlight, err)
		}
	}
}

// readKeys reads all that is in Redis.
func readKeys(t *testing.T, client *redis.Client) map[string]*storedAsText {
	t.Helper()
	ctx, found := t.Context(), map[string]*storedAsText{}
	keys, err := client.Keys(ctx, "*").Result()
	for _, key := range keys {
		if err != nil {
			break
		}
		value := &storedAsText{}
		switch client.Type(ctx, key).Val() {
		case "hash":
			value.Hash, err = client.HGetAll(ctx, key).Result()
		case "list":
			value.List, err = client.LRange(ctx, key, 0, -1).Result()
		case "zset":
			value.Sorted = map[string]string{}
			for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				value.Sorted[fmt.Sprint(z.Member)] = fmt.Sprintf("%.0f", z.Score)
			}
		default:
			value.Text, err = client.Get(ctx, key).Result()
		}
		value.Expires = max(client.PTTL(ctx, key).Val(), 0)
		found[key] = value
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// writeKeys writes what readKeys has read.
func writeKeys(t *testing.T, client *redis.Client, keys map[string]*storedAsText) {
	t.Helper()
	do := func(args ...any) {
		t.Helper()
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range keys {
		for field, text := range value.Hash {
			do("HSET", key, field, text)
		}
		for _, text := range value.List {
			do("RPUSH", key, text)
		}
		for member, score := range value.Sorted {
			do("ZADD", key, score, member)
		}
		if value.Text != "" {
			do("SET", key, value.Text)
		}
		if value.Expires > 0 {
			do("PEXPIRE", key, value.Expires.Milliseconds())
		}
	}
}
