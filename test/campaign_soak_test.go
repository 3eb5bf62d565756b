//go:build soak

package test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// The campaign: how long one run has faults, and what a power cut takes of what Redis had acknowledged.
const (
	campaignLength = 45 * time.Second
	lostByCut      = time.Second
	campaignPool   = "vendor"
)

// The bounds of jobs in flight, at four levels: what the configuration below says.
const campaignInFlight, poolInFlight, groupInFlight, flowInFlight = 60, 50, 20, 8

// TestCampaign has real processes work with flows in groups in a pool, limits, callbacks, results, delays, retries and batches of requests, while
// processes are killed and stopped, Redis is killed, stopped, loses its last second, and is flushed, and settings change. No job is lost that Redis
// kept, each id is in exactly one place at any time, counts are the sizes of their sets, and no bound of jobs in flight is passed.
//
// SOAK_SEED gives the same faults again, though not at the same instants.
func TestCampaign(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv(soakSeed); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", soakSeed, err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed was %d: %s=%d go test -tags soak ./test -run TestCampaign", seed, soakSeed, seed)
		}
	})
	c := newCampaign(t, seed)
	c.run(campaignLength)
	c.end()
	t.Logf("seed %d: %s", seed, c.figures())
}

type campaign struct {
	*system

	random *rand.Rand // of faults
	seed   uint64
	aof    string

	mu      sync.Mutex
	acked   map[string]time.Time // when the answer to the enqueue came
	excused map[string]bool      // Redis has lost them, and said so by a fault
	sizes   []aofSize
	faults  map[string]int
	arrived sync.Map // ids that were delivered
}

type aofSize struct {
	at   time.Time
	size int64
}

func newCampaign(t *testing.T, seed uint64) *campaign {
	t.Helper()
	c := &campaign{random: rand.New(rand.NewPCG(seed, 1)), seed: seed, acked: map[string]time.Time{}, excused: map[string]bool{}, faults: map[string]int{}}
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0", "--save", "")
	c.aof = filepath.Join(server.Dir(), "appendonlydir", "appendonly.aof.1.incr.aof")
	c.system = start(t, server, plan{
		rate: 400, dispatchers: 3, concurrency: 60, lease: 3 * time.Second, maxInFlight: campaignInFlight, hold: 20 * time.Millisecond, timeout: 2 * time.Second,
		bucket: fmt.Sprintf("pool = %q\nresult_retention = \"1h\"\nlimits = [\"many\"]\n[buckets.flow]\nkey = \"job\"\nmax_in_flight = %d\n[buckets.group]\nkey = \"job\"\nmax_in_flight = %d\n"+
			"[buckets.callbacks]\nbucket = \"told\"\norigins = [\"*\"]\n", campaignPool, flowInFlight, groupInFlight),
		more: limitTable("many", "token_bucket", "1000000/s") +
			fmt.Sprintf("[[pools]]\nname = %q\nrate = \"350/s\"\nmax_in_flight = %d\n", campaignPool, poolInFlight) +
			"[[buckets]]\nname = \"told\"\nrate = \"1000/s\"\n[buckets.webhook]\ntimeout = \"2s\"\nurl = \"http://127.0.0.1:9/\"\nallow_networks = [\"127.0.0.0/8\"]\n",
		respond: c.respond,
	})
	return c
}

// respond fails some first attempts.
func (c *campaign) respond(w http.ResponseWriter, r *http.Request, id string, attempt int) {
	c.arrived.Store(id, true)
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	select {
	case <-time.After(time.Duration(h.Sum32()%40) * time.Millisecond):
	case <-r.Context().Done():
	}
	if attempt == 1 && h.Sum32()%10 == 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (c *campaign) run(length time.Duration) {
	ctx, stop := context.WithTimeout(c.t.Context(), length)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { c.load(ctx) })
	all.Go(func() { c.watchFile(ctx) })
	for ctx.Err() == nil {
		c.fault(ctx)
		c.check("after a fault")
		letPass(ctx, time.Duration(c.random.IntN(2000))*time.Millisecond)
	}
	all.Wait()
}

func letPass(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// load enqueues jobs as long as ctx goes on. What was not answered is sent again under the same id, as a client does.
func (c *campaign) load(ctx context.Context) {
	random, n := rand.New(rand.NewPCG(c.seed, 2)), 0
	for ctx.Err() == nil {
		var lines []string
		for range 1 + random.IntN(30) {
			n++
			line := fmt.Sprintf(`{"id":"c-%d","payload":{"n":%d},"flow":"f%d","group":"g%d"`, n, n, random.IntN(12), random.IntN(4))
			switch random.IntN(6) {
			case 0:
				line += fmt.Sprintf(`,"delay":"%dms"`, random.IntN(3000))
			case 1:
				line += `,"callback_url":"` + c.receiver.URL + `/told"`
			case 2:
				line += `,"priority":"high"`
			}
			lines = append(lines, line+"}")
		}
		for ctx.Err() == nil && !c.enqueue(lines) {
			letPass(ctx, 200*time.Millisecond)
		}
		letPass(ctx, time.Duration(random.IntN(80))*time.Millisecond)
	}
}

// enqueue reports whether each line has a final answer.
func (c *campaign) enqueue(lines []string) bool {
	status, answer := c.request(http.MethodPost, "/v1/buckets/"+bucketName+"/jobs/batch", "application/x-ndjson", strings.NewReader(strings.Join(lines, "\n")+"\n"))
	if status != http.StatusOK {
		return false
	}
	var results struct {
		Results []struct {
			Status int    `json:"status"`
			ID     string `json:"id"`
		} `json:"results"`
	}
	if json.Unmarshal(answer, &results) != nil {
		return false
	}
	final := true
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range results.Results {
		switch r.Status {
		case http.StatusAccepted:
			c.acked[r.ID] = time.Now()
		case http.StatusServiceUnavailable:
			final = false
		}
	}
	return final
}

// watchFile notes how long the append-only file is.
func (c *campaign) watchFile(ctx context.Context) {
	for ; ctx.Err() == nil; letPass(ctx, 50*time.Millisecond) {
		if info, err := os.Stat(c.aof); err == nil {
			c.mu.Lock()
			c.sizes = append(c.sizes, aofSize{time.Now(), info.Size()})
			c.mu.Unlock()
		}
	}
}

// fault does one thing, and undoes it.
func (c *campaign) fault(ctx context.Context) {
	i := c.random.IntN(len(c.dispatchers))
	some := time.Duration(c.random.IntN(4000)) * time.Millisecond
	switch n := c.random.IntN(20); {
	case n < 5:
		c.count("dispatcher killed")
		c.dispatchers[i].kill()
		letPass(ctx, some/4)
		c.dispatchers[i] = c.restart[i]()
	case n < 8:
		c.count("dispatcher stopped")
		c.dispatchers[i].signal(c.t, syscall.SIGSTOP)
		letPass(ctx, some)
		c.dispatchers[i].signal(c.t, syscall.SIGCONT)
	case n < 10:
		c.count("producer killed")
		c.producer.kill()
		c.producer = run(c.t, c.api, "producer", "serve", "--config", c.config)
	case n < 12:
		c.count("redis stopped")
		c.redis.Stop()
		letPass(ctx, some/2)
		c.redis.Cont()
	case n < 13:
		c.count("redis killed")
		c.redis.Kill()
		c.restartRedis()
	case n < 16:
		c.cutPower()
	case n < 17:
		c.flush(ctx)
	default:
		c.change()
	}
}

func (c *campaign) count(fault string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[fault]++
}

func (c *campaign) restartRedis() {
	if err := c.redis.Restart(); err != nil {
		c.t.Fatalf("restart redis: %v", err)
	}
}

// cutPower kills Redis and takes the last second from its file. What was acknowledged since then is excused.
func (c *campaign) cutPower() {
	c.count("power cut")
	c.redis.Kill()
	since := time.Now().Add(-lostByCut)
	c.mu.Lock()
	at := aofSize{size: -1}
	for _, s := range c.sizes {
		if s.at.Before(since) {
			at = s
		}
	}
	if at.size >= 0 {
		for id, acked := range c.acked {
			c.excused[id] = c.excused[id] || acked.After(at.at.Add(-100*time.Millisecond))
		}
	}
	c.sizes = nil
	c.mu.Unlock()
	if at.size >= 0 {
		if err := os.Truncate(c.aof, at.size); err != nil {
			c.t.Fatal(err)
		}
	}
	c.restartRedis()
}

// flush removes all data. Whatever was acknowledged by then is excused.
func (c *campaign) flush(ctx context.Context) {
	c.count("flush")
	if err := c.redis.Client().FlushAll(ctx).Err(); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.acked {
		c.excused[id] = true
	}
	c.sizes = nil
}

// change changes a setting while all run.
func (c *campaign) change() {
	commands := []string{
		"bucket set " + bucketName + " --rate 150/s", "bucket set " + bucketName + " --rate 900/s --burst 20", "bucket reset " + bucketName,
		"bucket pause " + bucketName, "bucket resume " + bucketName, "flow pause " + bucketName + " f1 --group g1", "flow resume " + bucketName + " f1 --group g1",
		"flow set " + bucketName + " f2 --group g2 --rate 20/s", "pool set " + campaignPool + " --rate 200/s", "pool reset " + campaignPool,
	}
	command := commands[c.random.IntN(len(commands))]
	c.count("setting changed")
	c.cli(command)
}

func (c *campaign) cli(command string) {
	args := append(strings.Fields(command), "--config", c.config)
	if out, err := exec.CommandContext(c.t.Context(), filepath.Join(programs, "dispatcher"), args...).CombinedOutput(); err != nil {
		c.t.Logf("dispatcher %s: %v: %.200s", command, err, out) // Redis may be away, or the flow not there
	}
}

func (c *campaign) check(when string) {
	if wrong := checkInvariants(c.t.Context(), c.redis.Client(), bucketName, campaignPool, campaignInFlight, poolInFlight, groupInFlight, flowInFlight); wrong != "" {
		c.t.Errorf("%s:\n%s", when, wrong)
	}
}

// end lets all go that waits, and judges.
func (c *campaign) end() {
	for _, command := range []string{"bucket resume " + bucketName, "bucket reset " + bucketName, "pool reset " + campaignPool, "flow resume " + bucketName + " f1 --group g1"} {
		c.cli(command)
	}
	prefix := "tundish:{" + campaignPool + "}:b:" + bucketName + ":"
	client := c.redis.Client()
	await(c.t, 60*time.Second, "the bucket is empty", func() bool {
		body, err := client.HLen(c.t.Context(), prefix+"body").Result()
		return err == nil && body == client.ZCard(c.t.Context(), prefix+"dead").Val()
	})
	c.check("at the end")
	if lost := c.lost(); len(lost) > 0 {
		c.t.Errorf("%d jobs are lost that Redis kept, such as %v", len(lost), lost[:min(len(lost), 5)])
	}
}

func (c *campaign) lost() (lost []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.acked {
		if _, ok := c.arrived.Load(id); !ok && !c.excused[id] {
			lost = append(lost, id)
		}
	}
	return lost
}

func (c *campaign) figures() string {
	lost := len(c.lost())
	c.mu.Lock()
	defer c.mu.Unlock()
	missing, faults := 0, 0
	for id := range c.acked {
		if _, ok := c.arrived.Load(id); !ok {
			missing++
		}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(c.faults)) {
		faults += c.faults[name]
		list = append(list, fmt.Sprintf("%s %d", name, c.faults[name]))
	}
	r := c.history.Check()
	return fmt.Sprintf("%d jobs, %d deliveries, %d faults (%s); %d lost, %d missing that Redis had lost", len(c.acked), r.Delivered, faults, strings.Join(list, ", "), lost, missing-lost)
}
