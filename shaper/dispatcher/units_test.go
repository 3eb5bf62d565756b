package dispatcher

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// What departures reserve of budgets, use, give back and owe is counted once for each, in the units of the budgets. What is reserved
// and neither used nor given back was lost with a lease.
func TestUnitsAreCounted(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("llm", 1) // so that a job may be late by half a second: one that is given back for that would count twice
	b.Budgets = shaper.Budgets{rig.Rate("90000 tokens/m"), rig.Rate("9000 calls/m")}
	w := rig.NewWorld(t, b)
	used := map[string]shaper.Units{
		"less":    {shaper.UnitInput: 30, shaper.UnitOutput: 20},
		"more":    {shaper.UnitTokens: 35, "images": 4},
		"nothing": {},
	}
	taken := make(chan struct{})
	var returned atomic.Bool
	worker := shaper.WorkerFunc(func(ctx context.Context, a *shaper.Attempt) shaper.Outcome {
		switch {
		case a.ID == "unsent" && !returned.Swap(true):
			return shaper.Returned("late")
		case a.ID == "lost" && a.Number == 1:
			close(taken)
			<-ctx.Done() // another process has taken the lease
			return shaper.Done(200)
		}
		outcome := w.Note(ctx, a)
		outcome.Used = used[a.ID]
		return outcome
	})
	reg := prometheus.NewPedanticRegistry()
	stop := dispatch(w, worker, func(cfg *Config) { cfg.Registerer, cfg.Lease = reg, 3*time.Second })
	reserves := map[string]shaper.Units{
		"as":      {shaper.UnitInput: 100, shaper.UnitOutput: 50},
		"less":    {shaper.UnitTokens: 200, "images": 3},
		"more":    {shaper.UnitTokens: 10},
		"nothing": {shaper.UnitOutput: 70},
		"unsent":  {shaper.UnitTokens: 40},
		"lost":    {shaper.UnitTokens: 5},
	}
	for id, units := range reserves {
		receipts, err := w.Client.Enqueue(t.Context(), shaper.Job{Bucket: "llm", ID: id, Payload: []byte("x"), Units: units})
		if err != nil || receipts[0].Refusal != nil {
			t.Fatalf("%+v, %v", receipts, err)
		}
	}
	<-taken
	takeLease(w, "lost")
	w.Await(len(reserves))
	w.AwaitEmpty()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP tundish_units_total Units of budgets: reserved by departures; and of departures whose outcome is settled, used, given back because less was used, and owed because more was.
# TYPE tundish_units_total counter
tundish_units_total{bucket="llm",kind="given_back",unit="calls"} 2
tundish_units_total{bucket="llm",kind="given_back",unit="tokens"} 260
tundish_units_total{bucket="llm",kind="owed",unit="calls"} 0
tundish_units_total{bucket="llm",kind="owed",unit="tokens"} 25
tundish_units_total{bucket="llm",kind="reserved",unit="calls"} 8
tundish_units_total{bucket="llm",kind="reserved",unit="tokens"} 520
tundish_units_total{bucket="llm",kind="used",unit="calls"} 5
tundish_units_total{bucket="llm",kind="used",unit="tokens"} 280
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "tundish_units_total"); err != nil {
		t.Error(err)
	}
}

// A job may name units in a bucket without budgets: nothing is charged, and nothing counted.
func TestUnitsWithoutBudgets(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t, rig.Bucket("b", 500))
	reg := prometheus.NewPedanticRegistry()
	stop := dispatch(w, shaper.WorkerFunc(w.Note), func(cfg *Config) { cfg.Registerer = reg })
	if _, err := w.Client.Enqueue(t.Context(), shaper.Job{Bucket: "b", ID: "j", Payload: []byte("x"), Units: shaper.Units{"images": 3}}); err != nil {
		t.Fatal(err)
	}
	w.Await(1)
	w.AwaitEmpty()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(reg, "tundish_units_total"); err != nil || n != 0 {
		t.Errorf("%d series, %v", n, err)
	}
}

// A job that is handed over takes with it what metrics have as reserved, whose it is, and the first name of a renamed bucket.
func TestTicketTellsWhatIsCounted(t *testing.T) {
	t.Parallel()
	b := rig.Bucket("b", 10)
	d, err := New(Config{Timeout: rig.Patience, Redis: rig.NewWorld(t, b).Server.Client(), Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, rig.NewWaiting())})
	if err != nil {
		t.Fatal(err)
	}
	c := newBucketLoop(d, d.store.Known("b"), t.Context()).bucketConn
	named := *c.Own()
	named.Name, named.RenamedFrom = "n", "b"
	renamed := &bucketConn{Bucket: store.SettleOnly(&named, c.Keys), lease: c.lease}
	for _, counted := range []shaper.Units{nil, {"tokens": 1200, "calls": 1}} {
		given := &leased{Attempt: shaper.Attempt{Bucket: "b", ID: "a"}, mark: "1234567890abcannaXYZ", epoch: 1, claim: "c", maxAttempts: 3, counted: counted}
		ticket, err := readTicket(c.ticketOf(given))
		if err != nil {
			t.Fatal(err)
		}
		other, err := readTicket(renamed.ticketOf(given))
		if err != nil || other.bucket().Name != "n" || other.bucket().Keys != c.Keys {
			t.Errorf("of a renamed bucket: %+v, %v", other.bucket(), err)
		}
		if got := ticket.leased("d").counted; got.String() != counted.String() {
			t.Errorf("counted %s, want %s", got, counted)
		}
		if got := ticket.leased("d").Caller; got != "annaXYZ" {
			t.Errorf("the job comes from %q", got)
		}
	}
}
