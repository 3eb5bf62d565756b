package dispatcher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

func newLeases(t *testing.T, client redis.UniversalClient) *Leases {
	t.Helper()
	leases := must.Get(NewLeases(LeasesConfig{Redis: client, Timeout: time.Second}))(t)
	t.Cleanup(leases.Close)
	return leases
}

const goodTicket = `{"bucket":"b","id":"a","mark":"m","epoch":1,"claim":"c","max_attempts":3,"lease":1000000}`

// TestBadTickets has texts that name no lease. Nothing is asked of Redis, and the error says what the text is.
func TestBadTickets(t *testing.T) {
	t.Parallel()
	must.Get(readTicket(goodTicket))(t)
	leases := newLeases(t, redistest.Start(t).Client())
	for name, text := range map[string]string{
		"nothing":           "",
		"no JSON":           "a.1",
		"no object":         "7",
		"a bucket's braces": strings.Replace(goodTicket, `"b"`, `"b}:x:{"`, 1),
		"a name's braces":   strings.Replace(goodTicket, `"id"`, `"first_name":"b}:x:{","id"`, 1),
		"a pool's braces":   strings.Replace(goodTicket, `"id"`, `"pool":"{","id"`, 1),
		"an id with spaces": strings.Replace(goodTicket, `"a"`, `"a b"`, 1),
		"no epoch":          strings.Replace(goodTicket, `"epoch":1`, `"epoch":0`, 1),
		"no claim":          strings.Replace(goodTicket, `"c"`, `""`, 1),
		"levels":            strings.Replace(goodTicket, `"id"`, `"levels":3,"id"`, 1),
		"no lease":          strings.Replace(goodTicket, `1000000`, `0`, 1),
	} {
		if _, err := leases.Start(t.Context(), text); err == nil || !strings.Contains(err.Error(), "not a ticket of a Tundish dispatcher") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTicketOfNoJob starts a job that Redis does not have, and one of a client that is closed.
func TestTicketOfNoJob(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		leases := newLeases(t, client)
		if _, err := leases.Start(t.Context(), goodTicket); !errors.Is(err, ErrNotStarted) {
			t.Errorf("a job that is not there: %v", err)
		}
		leases.Close()
		if _, err := leases.Start(t.Context(), goodTicket); !errors.Is(err, shaper.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// inFlight puts a job in flight under the claim of goodTicket.
func inFlight(t *testing.T, client redis.UniversalClient) store.Keys {
	t.Helper()
	keys := store.BucketKeys("b")
	for _, err := range []error{
		client.HSet(t.Context(), keys.Meta(), "a", "3 1 0 0 0 c ").Err(),
		client.ZAdd(t.Context(), keys.Leases(), redis.Z{Member: "a", Score: float64(time.Now().Add(time.Minute).UnixMicro())}).Err(),
	} {
		must.OK(t, err)
	}
	return keys
}

// TestLeaseEndsWithItsRecord has the record of a started job vanish: the context of the handler ends, and so does Settle, as no outcome can count.
func TestLeaseEndsWithItsRecord(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		leases := newLeases(t, client)
		keys := inFlight(t, client)
		lease := must.Get(leases.Start(t.Context(), goodTicket))(t)
		if _, err := leases.Start(t.Context(), goodTicket); !errors.Is(err, ErrNotStarted) {
			t.Errorf("a second start: %v", err)
		}
		must.OK(t, client.HDel(t.Context(), keys.Meta(), "a").Err())
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); !errors.Is(cause, errLeaseLost) {
			t.Errorf("the context ended with %v", cause)
		}
		lease.Settle(shaper.Done(0)) // the bucket is not configured either: it gives up when the lease is over
	})
}

// TestLoneJobsOfAProcess starts jobs on their last chance: one at a time.
func TestLoneJobsOfAProcess(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	leases := newLeases(t, client)
	inFlight(t, client)
	lone := strings.Replace(goodTicket, `"id"`, `"last_chance":true,"id"`, 1)
	first := must.Get(leases.Start(t.Context(), lone))(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := leases.Start(ended, lone); !errors.Is(err, context.Canceled) || errors.Is(err, ErrNotStarted) {
		t.Errorf("a second job on its last chance: %v, want it to wait", err)
	}
	first.Settle(shaper.Done(0))
	if _, err := leases.Start(t.Context(), lone); !errors.Is(err, ErrNotStarted) { // its turn has come, and it was started before
		t.Errorf("after the first one: %v", err)
	}
}
