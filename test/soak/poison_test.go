//go:build soak

package soak

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/test/harness"
)

// victimOf names the Redis of a process that is a dispatcher with a worker
// that dies of a job: this program, started again.
const victimOf = "TUNDISH_TEST_VICTIM_OF"

func init() { harness.Mains[victimOf] = victim }

const poisonID = "poison"

// poisonBuckets are two buckets of one dispatcher; the poison job is in the first.
func poisonBuckets() []shaper.Bucket {
	buckets := make([]shaper.Bucket, 2)
	for i, name := range []string{"victims", "bystanders"} {
		b := shaper.DefaultBucket()
		b.Name = name
		b.Rate = admission.Rate{Count: 100, Per: time.Second, Unit: admission.UnitRequests}
		buckets[i] = b
	}
	return buckets
}

// victim drains until it dies of the poison job. It prints the ids that it
// delivered. Each takes a while, so that others are always under way.
func victim(url string) error {
	client, err := redisconn.Connect(url, redisconn.Options{})
	if err != nil {
		return err
	}
	worker := shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		if a.ID == poisonID {
			os.Exit(3)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return shaper.Returned("stopped")
		}
		fmt.Println(a.ID)
		return shaper.Done(200)
	})
	d, err := dispatcher.New(dispatcher.Config{
		Redis: client, Buckets: poisonBuckets(), Workers: harness.WorkersOf(poisonBuckets(), worker), Lease: time.Second,
	})
	if err != nil {
		return err
	}
	return d.Run(context.Background())
}

// TestPoison: a job that kills the process three times becomes a dead letter,
// and it alone. Jobs that were in flight beside it each time look the same from
// outside, those of other buckets too: all of them are delivered.
func TestPoison(t *testing.T) {
	harness.Quietly(t, func(t *testing.T, _ *harness.StallWatch) string { return poison(t) })
}

func poison(t *testing.T) (fault string) {
	const others = 60 // in each bucket
	server := redistest.Start(t)
	redis, err := redisconn.Connect(server.URL(), redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	client, err := producer.New(producer.Config{Redis: redis, Buckets: poisonBuckets()})
	if err != nil {
		t.Fatal(err)
	}
	op, err := operator.New(operator.Config{Redis: redis, Buckets: poisonBuckets()})
	if err != nil {
		t.Fatal(err)
	}
	put := func(bucket, id string) {
		receipts, err := client.Enqueue(t.Context(), shaper.Job{Bucket: bucket, ID: id, Payload: []byte("{}")})
		if err != nil || receipts[0].Refusal != nil {
			t.Fatal(receipts, err)
		}
	}
	innocent := map[string]string{} // id -> bucket
	for _, b := range poisonBuckets() {
		for i := range others {
			if i == others/6 && b.Name == "victims" {
				put(b.Name, poisonID)
			}
			id := fmt.Sprint(b.Name, "-", i)
			innocent[id] = b.Name
			put(b.Name, id)
		}
	}

	var output harness.LockedBuffer
	deaths, started := 0, time.Now()
	ended := make(chan struct{}, 1)
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), victimOf+"="+server.URL())
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = cmd.Wait() // it is to die
			ended <- struct{}{}
		}()
		return cmd
	}
	cmd := start()
	harness.Await(t, time.Minute, "nothing is left to deliver", func() bool {
		select {
		case <-ended:
			deaths++
			cmd = start()
		default:
		}
		infos, err := op.BucketInfos(t.Context())
		return err == nil && infos[0].Unfinished == 0 && infos[1].Unfinished == 0
	})
	took := time.Since(started)
	_ = cmd.Process.Kill()
	<-ended

	delivered := map[string]int{}
	for id := range strings.FieldsSeq(output.String()) {
		delivered[id]++
	}
	again := 0
	for id, bucket := range innocent {
		job, err := client.Job(t.Context(), bucket, id)
		if err != nil || job.State != shaper.StateDone || delivered[id] < 1 {
			t.Errorf("job %s was delivered %d times: %+v, %v", id, delivered[id], job, err)
		}
		if delivered[id] > 1+deaths {
			fault = fmt.Sprintf("job %s was delivered %d times", id, delivered[id])
		}
		again += delivered[id] - 1
	}
	job, err := client.Job(t.Context(), "victims", poisonID)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d deaths; after %s all of %d other jobs were delivered, %d of them again; %s is %v: %s",
		deaths, took.Round(time.Millisecond), len(innocent), again, job.ID, job.State, job.Why())
	if job.State != shaper.StateDead || job.Last.Cause != shaper.CausePoison || delivered[poisonID] > 0 {
		t.Errorf("%d deaths; the job is %+v", deaths, job)
	}
	if deaths != 3 { // fewer where a process stood still for a whole lease
		fault = fmt.Sprintf("%d deaths", deaths)
	}
	infos, err := op.BucketInfos(t.Context())
	if err != nil || infos[0].Dead != 1 || infos[1].Dead != 0 {
		t.Errorf("dead letters: %+v, %v", infos, err)
	}
	// A lease, two looks of the patrol and a second for each death, and the jobs
	// of a neighbourhood one by one.
	if took > 30*time.Second {
		fault = fmt.Sprintf("that took %s", took)
	}
	return fault
}
