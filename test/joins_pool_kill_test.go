package test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// Buckets that move while programs die. The ballast are flows with a job each that is not due: their keys make the move last.
const (
	ballast      = 8000
	overrideRate = 80 // of the bucket, set by an operator, where the configuration says aloneRate
)

// stage is how far a move has come, as Redis holds it.
type stage int

const (
	stageBefore   stage = iota
	stageHeld           // the bucket waits for the deliveries under way
	stageLeft           // no script obeys it at the old place
	stageCarrying       // keys of flows are at the new place
	stageDecided        // the index names the new place
	stageDone           // it is configured there
)

var stageNames = [...]string{"before", "held", "left", "carrying", "decided", "done"}

// placeKey is the name of a key of the bucket at the place of a tag.
func placeKey(tag, name string) string {
	return "tundish:{" + tag + "}:b:" + harness.BucketName + ":" + name
}

// stageOf reads how far the move has come. While Redis is away it is the stage before.
func (j *joining) stageOf(from, to string) stage {
	pipe := j.Inspector.Pipeline()
	ctx := context.WithoutCancel(j.T.Context())
	down, index := pipe.HGet(ctx, placeKey(from, "pace"), "down"), pipe.HGet(ctx, "tundish:buckets", harness.BucketName)
	left, lives := pipe.HGet(ctx, placeKey(from, "settings"), "left_for"), pipe.HExists(ctx, placeKey(to, "settings"), "rate_count")
	carried := pipe.Exists(ctx, placeKey(to, "later:ballast-0"), placeKey(to, "later:ballast-4000"), placeKey(to, "later:ballast-7999"))
	_, _ = pipe.Exec(ctx) // a missing key is an error, too
	switch {
	case index.Val() == to && lives.Val():
		return stageDone
	case index.Val() == to:
		return stageDecided
	case carried.Val() > 0 && left.Val() == to:
		return stageCarrying
	case left.Val() == to:
		return stageLeft
	case strings.Contains(down.Val(), "moves"):
		return stageHeld
	}
	return stageBefore
}

// load fills the bucket with what a move must not lose: jobs of many flows that are not due, an override and a paused flow.
func (j *joining) load() {
	j.T.Helper()
	const batch = 1000
	for first := 0; first < ballast; first += batch {
		lines := make([]string, batch)
		for i := range lines {
			lines[i] = fmt.Sprintf(`{"id":"ballast-%d","payload":{},"delay":"5h","flow":"ballast-%d"}`, first+i, first+i)
		}
		if status, answer := j.PostBatch(harness.BucketName, lines); status != http.StatusOK {
			j.T.Fatalf("%d %.300s", status, answer)
		}
	}
	harness.Command(j.T, 0, "dispatcher", "bucket", "set", harness.BucketName, "--rate", fmt.Sprintf("%d/s", overrideRate), "--config", j.Config)
	harness.Command(j.T, 0, "dispatcher", "flow", "pause", harness.BucketName, "ballast-7", "--config", j.Config)
}

// leased is how many jobs are in flight at a place.
func (j *joining) leased(tag string) int {
	return int(j.Inspector.ZCard(context.WithoutCancel(j.T.Context()), placeKey(tag, "leases")).Val())
}

// kill ends dispatchers as the move comes to a stage, with jobs that come meanwhile, and starts them again. It returns how many deliveries
// that may have cut.
func (j *joining) kill(at stage, from, to string, restartRedis bool) (cut int) {
	j.T.Helper()
	victims := j.Dispatchers
	if !restartRedis && at == stageHeld {
		victims = victims[:1] // the other one goes on with the move
	}
	deadline := time.Now().Add(harness.Patience * 20 * time.Second)
	for j.stageOf(from, to) < at && time.Now().Before(deadline) {
		time.Sleep(500 * time.Microsecond) // the stages are short: as often as Redis answers
	}
	if at != stageLeft {
		time.Sleep(rand.N(10 * time.Millisecond)) // another moment in each run
	}
	for _, d := range victims {
		_ = d.Cmd.Process.Kill()
	}
	for _, d := range victims {
		<-d.Done
	}
	was := j.stageOf(from, to)
	cut = j.leased(from) + j.leased(to) + int(j.Inspector.ZCard(j.T.Context(), "tundish:{"+poolName+"}:b:"+poolMail+":leases").Val())
	if restartRedis {
		if err := j.Redis.Restart(); err != nil {
			j.T.Fatal(err)
		}
		harness.CommandsOf(j.T, j.Redis, j.given.Read)
	}
	j.enqueue(harness.BucketName, j.Receiver.URL, 10) // producers go on
	j.T.Logf("from %s to %s: %d killed, wanted at %q, were at %q, %d deliveries cut, then %q", from, to, len(victims), stageNames[at],
		stageNames[was], cut, stageNames[j.stageOf(from, to)])
	for i := range victims {
		j.Dispatchers[i] = j.Restart[i]()
	}
	return cut
}

// wantKept fails unless all that load has made, and the jobs of before, are at the place once, and nothing is left at the other one.
func (j *joining) wantKept(tag, other string) {
	j.T.Helper()
	ctx := j.T.Context()
	if n := j.Inspector.HLen(ctx, placeKey(tag, "body")).Val(); n != ballast {
		j.T.Errorf("the bucket holds %d jobs, want %d", n, ballast)
	}
	pipe, lacking := j.Inspector.Pipeline(), 0
	type found interface{ Val() float64 }
	later := make([]found, ballast)
	for i := range later {
		later[i] = pipe.ZScore(ctx, placeKey(tag, fmt.Sprintf("later:ballast-%d", i)), fmt.Sprintf("ballast-%d", i))
	}
	_, _ = pipe.Exec(ctx)
	for _, one := range later {
		if one.Val() == 0 {
			lacking++
		}
	}
	if lacking > 0 {
		j.T.Errorf("%d of %d delayed jobs are not in the place of their flow", lacking, ballast)
	}
	for _, key := range j.Inspector.Keys(ctx, placeKey(other, "*")).Val() {
		if name := key[len(placeKey(other, "")):]; name != "settings" && name != "conf" && name != "differing" && !strings.HasPrefix(name, "departed:f-") {
			j.T.Errorf("the place that the bucket has left has the key %s", name)
		}
	}
	if n := j.Inspector.HGet(ctx, placeKey(tag, "count"), "scheduled").Val(); n != fmt.Sprint(ballast) {
		j.T.Errorf("it counts %s delayed jobs, want %d", n, ballast)
	}
	if text := j.Inspector.HGet(ctx, placeKey(tag, "flow_settings"), "ballast-7").Val(); !strings.Contains(text, `"by":`) {
		j.T.Errorf("the paused flow has the settings %q", text)
	}
	j.wantRemembered()
	if status, answer := j.Request(http.MethodGet, "/v1/buckets/"+harness.BucketName+"/jobs/"+harness.BucketName+"-1/result", "", nil); status != http.StatusOK {
		j.T.Errorf("the result of the second job is answered %d %.200s", status, answer)
	}
	var shown struct {
		Rate   string
		Quotas []struct{ Used int } `json:"quota_use"`
	}
	if err := json.Unmarshal([]byte(harness.Command(j.T, 0, "dispatcher", "bucket", "show", harness.BucketName, "--json", "--config", j.Config)), &shown); err != nil {
		j.T.Fatal(err)
	}
	if want := j.posted[harness.BucketName]; shown.Rate != fmt.Sprintf("%d/s", overrideRate) || len(shown.Quotas) != 1 || shown.Quotas[0].Used < want {
		j.T.Errorf("it shows %+v, want the override and %d departures at least", shown, want)
	}
}

// wantRates fails if any window has more slots than the rates of the bucket and of the pool allow, or if the bucket had slots at two places
// at a time.
func (j *joining) wantRates(moves int) {
	j.T.Helper()
	var own, shared harness.Slots
	var ofBucket []harness.Grant
	grants, _ := j.given.All()
	for _, g := range grants {
		if g.Bucket == harness.BucketName {
			own, ofBucket = append(own, g.Slot), append(ofBucket, g)
		}
		if g.Tag == poolName {
			shared = append(shared, g.Slot)
		}
	}
	slices.Sort(own)
	slices.Sort(shared)
	slices.SortFunc(ofBucket, func(a, b harness.Grant) int { return cmp.Compare(a.Slot, b.Slot) })
	changes := 0
	for i := 1; i < len(ofBucket); i++ {
		if ofBucket[i].Tag != ofBucket[i-1].Tag {
			changes++
		}
	}
	j.T.Logf("%d slots of the bucket at %d places in turn, %d of the pool", len(own), changes+1, len(shared))
	if changes != moves {
		j.T.Errorf("the slots of the bucket change their place %d times, want %d", changes, moves)
	}
	if early := own.Early(overrideRate); early >= time.Microsecond {
		j.T.Errorf("the slots of the bucket are %s ahead of its rate", early)
	}
	if early := shared.Early(poolRate); early >= time.Microsecond {
		j.T.Errorf("the slots of the pool are %s ahead of its rate", early)
	}
}

// A bucket joins a pool and leaves it again under traffic, and its dispatchers are killed at each stage of a move; once Redis restarts from its
// file, too. Producers go on. No job is lost, only deliveries that a kill cut come twice, no window has more slots than the rates allow,
// and what the bucket remembers, counts and was told by operators goes with it.
func TestDispatchersDieAsABucketJoinsAPool(t *testing.T) {
	harness.OnlyInCI(t)
	harness.BesideOthers(t)
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	j := startJoining(t, server, 2*time.Second, "quotas = [\"100000/h\"]\nresult_retention = \"1h\"\n[buckets.flow]\nkey = \"job\"\n")
	j.hasFlows = true
	j.load()
	from, to, cut, moves := harness.BucketName, poolName, 0, 0
	j.flowing(from)
	for _, k := range []struct {
		at    stage
		redis bool
	}{{stageCarrying, false}, {stageHeld, false}, {stageLeft, false}, {stageCarrying, true}, {stageDecided, false}, {stageCarrying, false}} {
		for i := range j.Dispatchers {
			j.configure(fmt.Sprintf("dispatcher%d.toml", i), to == poolName)
		}
		cut += j.kill(k.at, from, to, k.redis)
		moves++
		j.flowing(to)
		from, to = to, from
	}
	r := j.AwaitDelivered(60 * time.Second)
	t.Log(r)
	if r.Err() != nil || r.Extra > cut {
		t.Errorf("%v; %d deliveries came twice, and kills cut %d", r.Err(), r.Extra, cut)
	}
	harness.Await(t, 20*time.Second, "only the delayed jobs are left", func() bool {
		return j.Inspector.HLen(t.Context(), placeKey(from, "body")).Val() == ballast
	})
	j.wantKept(from, to)
	j.wantRates(moves)
}
