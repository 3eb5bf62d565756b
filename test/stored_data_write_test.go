package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// writeDump runs a program that stores data of every shape, and writes its keys to a file, one a line.
func writeDump(t *testing.T, file string) {
	store := newBubbleStore(t)
	hang := make(chan struct{})
	all := newActors(t, store, storedWorker(func(a *shaper.Attempt) shaper.Outcome {
		switch strings.TrimRight(a.ID, "0123456789") {
		case "retry":
			return shaper.Outcome{Result: shaper.ResultRetry, Reason: "http_503", Detail: "busy", Status: 503, RetryAfter: 2 * time.Minute}
		case "dead", "dropped":
			return shaper.Dead("http_410", "gone")
		case "gone":
			return shaper.Outcome{Result: shaper.ResultDead, Reason: "gone", Status: 410, Gone: true, Signal: shaper.SignalAccepted}
		case "held":
			return shaper.Outcome{Result: shaper.ResultHeld, Reason: "http_429", Status: 429, RetryAfter: 90 * time.Second, Signal: shaper.SignalThrottled}
		case "hang":
			<-hang
		}
		done := shaper.Done(200)
		if a.Reserved != nil {
			done.Used = shaper.Units{shaper.UnitInput: 20, shaper.UnitOutput: 30}
		}
		if a.AnswerBytes > 0 {
			done.Answer = &shaper.Answer{Status: 200, Headers: map[string][]string{"X-Of": {a.ID}}, Body: []byte("answer\n")}
		}
		return done
	}), func(context.Context, ...shaper.Job) ([]shaper.Receipt, error) {
		return nil, errors.New("what hooks and callbacks say stays in Redis")
	})
	ctx, fates, op := t.Context(), map[string]string{}, all.operator.As("anna")
	put := func(bucket, fate string, changed func(*shaper.Job), ids ...string) {
		t.Helper()
		for _, id := range ids {
			job := storedJob(bucket, id)
			if changed != nil {
				changed(&job)
			}
			receipts, err := all.producer.Enqueue(ctx, job)
			if err != nil || receipts[0].Refusal != nil {
				t.Fatalf("%s/%s: %+v, %v", bucket, id, receipts, err)
			}
			fates[bucket+"/"+receipts[0].ID] = fate
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var budgets operator.FlowPatch
	must(budgets.Put(shaper.FlowBudgets, "50000 tokens/d"))
	_, err := op.Bucket("tokens").Flow("f-hang").Set(ctx, budgets)
	must(err)
	running, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- all.run(running) }()
	for _, b := range storedBuckets() {
		put(b.Name, "done", nil, "done1", "done2")
		put(b.Name, "dead", nil, "dead1")
		put(b.Name, "dropped", nil, "dropped1")
		put(b.Name, "waits", nil, "retry1", "hang1", "hang2")
		put(b.Name, "cancelled", func(j *shaper.Job) { j.Delay = 2 * time.Minute }, "cancelled1")
		put(b.Name, "waits", func(j *shaper.Job) { j.Delay = 3 * time.Minute }, "delayed1")
		put(b.Name, "waits", func(j *shaper.Job) { j.NotBefore = time.Now().Add(4 * time.Minute) }, "later1")
	}
	for _, bucket := range []string{"flows", "groups"} {
		put(bucket, "dead", nil, "gone1")
	}
	time.Sleep(20 * time.Second)        // in a bubble: no time passes
	for _, b := range storedBuckets() { // what answers change, in each scope
		put(b.Name, "waits", nil, "held1")
	}
	time.Sleep(time.Second) // nor here
	for _, b := range storedBuckets() {
		_, err := op.Bucket(b.Name).Job("cancelled1").Cancel(ctx)
		must(err)
		_, err = op.Bucket(b.Name).Dead().Drop(ctx, "dropped1")
		must(err)
		var patch operator.BucketPatch
		must(patch.Put(shaper.SettingRate, "30/s"))
		_, err = op.Bucket(b.Name).Set(ctx, patch)
		must(err)
		must(op.Bucket(b.Name).Pause(ctx, "the receiver moves"))
		for _, priority := range shaper.Priorities() {
			put(b.Name, "waits", func(j *shaper.Job) { j.Priority = priority }, "wait-"+string(priority)+"1")
		}
		put(b.Name, "waits", func(j *shaper.Job) { j.ExpiresIn = 30 * 24 * time.Hour }, "expires1")
		put(b.Name, "waits", func(j *shaper.Job) { j.Headers = map[string][]string{"X-Of": {"b", "c"}} }, "headers1")
		put(b.Name, "waits", func(j *shaper.Job) { j.ID = "" }, "made")
		put(b.Name, "waits", func(j *shaper.Job) { j.Once = true }, "once1")
	}
	_, awaited, err := all.producer.Await(ctx, storedJob("plain", "awaited1"))
	must(err)
	awaited.Stop()
	fates["plain/awaited1"] = "waits"
	_, err = op.Bucket("hours").Drain(ctx, operator.DrainOptions{Max: 100})
	must(err)
	_, err = op.Schedule("nightly").Set(ctx, "plain", shaper.Schedule{
		Name: "nightly", Cron: "0 3 * * *", Timezone: "Europe/Paris", Job: shaper.ScheduledJob{Payload: []byte(`{"of":"made"}`)},
	})
	must(err)
	fired, _, err := op.Schedule("nightly").Fire(ctx)
	must(err)
	fates["plain/"+fired] = "waits"
	var own operator.FlowPatch
	must(own.Put(shaper.FlowRate, "7/s"))
	for _, flow := range []operator.Flow{op.Bucket("flows").Flow("f-wait-low"), op.Bucket("groups").Group("g").Flow("f-wait-low")} {
		_, err := flow.Set(ctx, own)
		must(err)
		must(flow.Pause(ctx, "the tenant asked"))
	}
	_, err = op.Bucket("groups").Group("g").Set(ctx, own)
	must(err)
	var patch operator.BucketPatch
	must(patch.Put(shaper.SettingBurst, "3"))
	_, err = op.Pool("pool").Set(ctx, patch)
	must(err)
	time.Sleep(3 * time.Second) // nor here

	d := dump{At: time.Since(bubbleBegan), Fates: fates, Keys: readKeys(t, all.redis), Charged: chargedTokens(t, all)}
	close(hang)
	stop()
	must(<-stopped)
	all.producer.Close() // it still waits for an answer
	must(os.WriteFile(file, d.text(t), 0o600))
}

// text returns the dump as JSON, one key a line: a change of one key is one line of a diff.
func (d *dump) text(t *testing.T) []byte {
	keys := d.Keys
	head := *d
	head.Keys = nil
	text, err := json.Marshal(head)
	text = bytes.TrimSuffix(text, []byte("null}")) // Keys is the last field
	text = append(text, '{')
	for i, key := range slices.Sorted(maps.Keys(keys)) {
		if i > 0 {
			text = append(text, ',')
		}
		line, wrong := json.Marshal(map[string]*storedAsText{key: keys[key]})
		err = errors.Join(err, wrong)
		text = append(append(text, '\n'), line[1:len(line)-1]...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return append(text, "\n}}\n"...)
}
