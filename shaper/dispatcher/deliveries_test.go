package dispatcher

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A log of deliveries whose bytes are used up keeps the newest ones, and has a dead letter that was redriven and delivered, with its
// attempts since then.
func TestLogOfDeliveriesIsFull(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 1000)
	b.Results = shaper.ResultSettings{Retention: time.Hour, Max: 1000, Bytes: 1500}
	conn := redistest.Start(t).Client()
	all := []shaper.Bucket{b}
	client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: all}))(t)
	t.Cleanup(client.Close)
	var repaired atomic.Bool
	ended := make(chan string, 100)
	worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
		if err := a.Depart(); err != nil {
			return shaper.Returned("late")
		}
		defer func() { ended <- a.ID }()
		if a.ID == "dies" && !repaired.Load() {
			return shaper.Dead("http_404", "not found")
		}
		return shaper.Done(200)
	})
	var order []string // in which they ended; one that is late is given back, and leaves behind others
	// run enqueues jobs, and has a dispatcher run until so many have ended; without jobs, one.
	run := func(jobs ...shaper.Job) {
		t.Helper()
		must.Get(client.Enqueue(t.Context(), jobs...))(t)
		d := must.Get(New(Config{Redis: conn, Buckets: all, Workers: map[string]shaper.Worker{"b": worker}, Concurrency: 1}))(t)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- d.Run(ctx) }()
		for range max(len(jobs), 1) {
			order = append(order, <-ended)
		}
		stop()
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
	}
	run(shaper.Job{Bucket: "b", ID: "dies"})
	var jobs []shaper.Job
	for i := range 40 {
		jobs = append(jobs, shaper.Job{Bucket: "b", ID: fmt.Sprintf("j%02d", i)})
	}
	run(jobs...)
	repaired.Store(true)
	if moved, err := client.Op.As("anna").Bucket("b").Dead().Redrive(t.Context(), "dies"); err != nil || moved.Moved != 1 {
		t.Fatal(moved, err)
	}
	run()
	page, err := client.Op.Bucket("b").Find(t.Context(), operator.JobFilter{State: shaper.StateDone}, "", 100)
	if err != nil || len(page.Jobs) < 5 || len(page.Jobs) >= 40 {
		t.Fatalf("%d jobs are logged: %v", len(page.Jobs), err)
	}
	if newest := page.Jobs[0]; newest.ID != "dies" || newest.Ended.Attempts != 1 {
		t.Errorf("the newest is %s: %+v", newest.ID, newest.Ended)
	} else if all := newest.Ended.Deliveries(); len(all) != 2 || all[0].Reason != "http_404" || all[1].Number != 2 || all[1].Result != shaper.ResultDone {
		t.Errorf("its deliveries are %+v", all)
	}
	sent := page.Jobs[0].Ended.Departed // long after it was enqueued
	for _, f := range []operator.JobFilter{{Since: sent}, {Since: sent, Until: sent.Add(time.Microsecond)}} {
		f.State = shaper.StateDone
		if then, err := client.Op.Bucket("b").Find(t.Context(), f, "", 100); err != nil || len(then.Jobs) != 1 || then.Jobs[0].ID != "dies" {
			t.Errorf("sent at %s: %d jobs, %v", sent, len(then.Jobs), err)
		}
	}
	infos := must.Get(client.Op.BucketInfos(t.Context(), "b"))(t)
	if k, now := infos[0].Results, infos[0].Now; k.Kept < int64(len(page.Jobs)) || k.Bytes > 1500 || k.Max != 1000 || k.MaxBytes != 1500 || k.Retention != time.Hour ||
		k.Dropped < 1 || k.Oldest.After(now) || k.Oldest.Before(now.Add(-time.Hour)) || !k.IsShort(now) && k.Bytes >= 1350 {
		t.Errorf("at %s the results are %+v", now, k)
	}
	logged := map[string]bool{}
	for _, job := range page.Jobs {
		logged[job.ID] = true
	}
	if first, last := order[1], order[len(jobs)]; logged[first] || !logged[last] {
		t.Errorf("logged are %v, and they ended as %v", logged, order)
	}
}
