package operator_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// example has a bucket "letters", with flows, on a Redis within this process. A job of the flow "acme" waits in it.
func example() (op *operator.Operator, closer func()) {
	server, err := embedded.Start("127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	conn, err := redisconn.Connect(server.URL(), redisconn.Options{})
	if err != nil {
		panic(err)
	}
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	b := shaper.DefaultBucket()
	b.Name, b.Flow = "letters", &flow
	b.Rate, _ = admission.ParseRate("20/s")
	buckets := []shaper.Bucket{b}
	fill(conn, buckets)
	if op, err = operator.New(operator.Config{Redis: conn, Buckets: buckets}); err != nil {
		panic(err)
	}
	return op, func() { _ = conn.Close(); server.Close() }
}

func fill(conn redis.UniversalClient, buckets []shaper.Bucket) {
	client, err := producer.New(producer.Config{Redis: conn, Buckets: buckets})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	if _, err := client.Enqueue(context.Background(), shaper.Job{Bucket: "letters", ID: "a", Flow: "acme", Payload: []byte("dear")}); err != nil {
		panic(err)
	}
}

// Reads need no author, changes do. A pause shows its author and its reason.
func ExampleOperator_As() {
	op, closer := example()
	defer closer()
	ctx := context.Background()
	if err := op.As("anna").Bucket("letters").Flow("acme").Pause(ctx, "their server is down"); err != nil {
		panic(err)
	}
	job, err := op.Bucket("letters").Job("a").Info(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(job.BlockedBy(), job.OfFlow.Pause.By, job.OfFlow.Pause.Reason)
	was, err := op.As("bert").Bucket("letters").Flow("acme").Resume(ctx)
	fmt.Println("was paused:", was, err)
	// Output:
	// [flow-paused pace] anna their server is down
	// was paused: true <nil>
}

// Settings that are changed at run time hold in every process, over what configurations say, until they are reset.
func ExampleBucket_Set() {
	op, closer := example()
	defer closer()
	ctx, bucket := context.Background(), op.As("anna").Bucket("letters")
	var patch operator.BucketPatch
	if err := errors.Join(patch.Put(shaper.SettingRate, "5/s"), patch.Put(shaper.SettingCapacity, "500")); err != nil {
		panic(err)
	}
	fmt.Println(bucket.Set(ctx, patch))
	info, err := bucket.Info(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(info.Rate, "by", info.Overrides[0].By)
	fmt.Println(bucket.Reset(ctx, shaper.SettingRate))
	// Output:
	// [rate 20/s → 5/s capacity 10000 → 500] <nil>
	// 5/s by anna
	// [rate 5/s → 20/s] <nil>
}

// One flow has settings of its own, here three departures in each of its turns.
func ExampleFlow_Set() {
	op, closer := example()
	defer closer()
	ctx, flow := context.Background(), op.As("anna").Bucket("letters").Flow("acme")
	var patch operator.FlowPatch
	if err := patch.Put(shaper.FlowWeight, "3"); err != nil {
		panic(err)
	}
	own, err := flow.Set(ctx, patch)
	if err != nil {
		panic(err)
	}
	info, err := flow.Info(ctx)
	fmt.Println("weight", *own.Weight, "waiting", info.Waiting, err)
	// Output:
	// weight 3 waiting 1 <nil>
}

// A purge drops all jobs that wait.
func ExampleBucket_Purge() {
	op, closer := example()
	defer closer()
	ctx := context.Background()
	purged, err := op.As("anna").Bucket("letters").Purge(ctx, operator.PurgeOptions{})
	fmt.Println(purged.Jobs, err)
	job, err := op.Bucket("letters").Job("a").Info(ctx)
	fmt.Println(job.State, err)
	// Output:
	// 1 <nil>
	// cancelled <nil>
}

// Dead letters are kept until an operator redrives or drops them, or their retention ends.
func ExampleDeadLetters() {
	op, closer := example()
	defer closer()
	ctx, dead := context.Background(), op.As("anna").Bucket("letters").Dead()
	letters, err := dead.List(ctx, 0, 10)
	fmt.Println(len(letters), err)
	redriven, err := dead.Redrive(ctx, "a") // which waits, and is no dead letter
	fmt.Println(redriven.Moved, redriven.Unknown, err)
	// Output:
	// 0 <nil>
	// 0 1 <nil>
}

// A schedule that is made so is kept in Redis until it is removed, whatever configurations say.
func ExampleSchedule_Set() {
	op, closer := example()
	defer closer()
	ctx := context.Background()
	_, err := op.As("anna").Schedule("weekly").Set(ctx, "letters", shaper.Schedule{
		Cron: "0 6 * * MON", Timezone: "Europe/Paris", Job: shaper.ScheduledJob{Flow: "acme", Payload: []byte("dear")},
	})
	if err != nil {
		panic(err)
	}
	s, err := op.Schedule("weekly").Info(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Name, s.Cron, s.Bucket, s.Source, s.MadeBy)
	// Output: weekly 0 6 * * MON letters api anna
}
