package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
)

// A bucket that leaks by hand only is drained by the command, which watches until it is empty and exits with 0, or with 1 if the drain is
// stopped. What runs is shown, and not started twice.
func TestDrain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := &site{redis: server.Client(), own: bucket(t, "webhooks"), env: writeConfig(t, fmt.Sprintf(`
[redis]
url = %q
timeout = "10s"
[[buckets]]
name = "webhooks"
rate = "50/s"
capacity = 5
shed = { low = 100, normal = 100, high = 100 }
[buckets.drain]
manual = true
`, server.URL()))}
	s.own.Drain = &schedule.Drain{Manual: true}
	var err error
	if s.client, err = producer.New(producer.Config{Redis: s.redis, Buckets: []shaper.Bucket{s.own}, Timeout: patience}); err != nil {
		t.Fatal(err)
	}
	s.enqueue(t, "webhooks", "a")
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "hours       closed until an operator drains it")
	s.run(t, "dispatcher bucket drain nosuch").want(t, 4, `unknown bucket "nosuch"`)
	s.run(t, "dispatcher drain nosuch").want(t, 2, `there is no command "drain"; did you mean "bucket"?`)
	s.run(t, "dispatcher bucket drain webhooks --rate often").want(t, 2, `rate: rate "often": want a number and a period`)
	s.run(t, "dispatcher bucket drain webhooks --max 0").want(t, 2, "--max 0: want 1 or more")
	s.run(t, "dispatcher bucket drain webhooks --stop --watch").want(t, 2, "--stop goes with no other flag")
	s.run(t, "dispatcher bucket drain webhooks --stop").want(t, 0, "no drain of webhooks runs")
	s.run(t, "dispatcher bucket drain webhooks --max 7").want(t, 0, "drain of webhooks: running: 0 departed of 7, 1 waiting, 0 in flight")
	s.run(t, "dispatcher bucket drain webhooks").want(t, 1, `bucket "webhooks" has a drain, which runs: running, 0 of 7 departed, asked for `,
		"Stop it first: `dispatcher bucket drain webhooks --stop`. To watch it: `dispatcher bucket drain webhooks --watch`")
	for _, other := range []string{"--max 8", "--max 7 --until-empty", "--rate 5/s", "--max 7 --rate 5/s"} {
		s.run(t, "dispatcher bucket drain webhooks --watch "+other).want(t, 1, "Stop it first")
	}
	for _, same := range []string{"--watch", "--watch --max 7"} {
		s.watchRunning(t, same)
	}
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "hours       open at 50/s", "drain       running, 0 of 7 departed, asked for ")
	s.run(t, "dispatcher bucket drain webhooks --stop").want(t, 0, "stopped: stopped, 0 of 7 departed, asked for ")

	delivered := func(context.Context, *shaper.Attempt) shaper.Outcome { return shaper.Done(200) }
	d := must.Get(dispatcher.New(dispatcher.Config{
		Redis: s.redis, Buckets: []shaper.Bucket{s.own}, Workers: map[string]shaper.Worker{"webhooks": shaper.WorkerFunc(delivered)},
	}))(t)
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	running.Go(func() { _ = d.Run(ctx) })
	defer running.Wait()
	defer stop()
	ended := make(chan result)
	go func() { ended <- s.run(t, "dispatcher bucket drain webhooks --watch") }()
	select {
	case r := <-ended:
		r.want(t, 0, "running: ", "done: ", " departed, 0 waiting, 0 in flight") // more than one, where a permit came late
	case <-time.After(30 * time.Second):
		t.Fatal("the watch does not end though the bucket is empty")
	}

	s.enqueue(t, "webhooks", "b")
	s.run(t, "dispatcher bucket pause webhooks").want(t, 0)
	s.run(t, "dispatcher bucket drain webhooks").want(t, 0, "running: 0 departed, 1 waiting, 0 in flight, paused")
	s.run(t, "dispatcher bucket drain webhooks --stop").want(t, 0, "stopped: ")
	go func() { ended <- s.run(t, "dispatcher bucket drain webhooks --watch") }()
	eventually(t, "the drain runs", func() bool {
		return strings.Contains(s.run(t, "dispatcher bucket drain webhooks --stop").out, "stopped: ")
	})
	if r := <-ended; r.code != 1 || !strings.Contains(r.err, `the drain of bucket "webhooks" was stopped`) {
		t.Errorf("the watch of a drain that is stopped: %+v", r)
	}
}

// watchRunning has the command watch a drain that runs, until it says that it does so.
func (s *site) watchRunning(t *testing.T, flags string) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	said, says := io.Pipe()
	code := make(chan int, 1)
	go func() {
		words := append([]string{"bucket", "drain", "webhooks"}, strings.Fields(flags)...)
		code <- program("dispatcher")(ctx, words, s.env, strings.NewReader(""), io.Discard, says)
		_ = says.Close()
	}()
	lines := bufio.NewScanner(said)
	if !lines.Scan() || lines.Text() != "a drain of webhooks runs already: this watches it" {
		t.Errorf("drain webhooks %s: said %q", flags, lines.Text())
	}
	end()
	if !lines.Scan() || !strings.Contains(lines.Text(), `the drain of bucket "webhooks" goes on`) {
		t.Errorf("drain webhooks %s: said %q in the end", flags, lines.Text())
	}
	must.Equal(t, <-code, 1, "drain webhooks %s: exit code", flags)
}
