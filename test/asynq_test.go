package test

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	hibiken "github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
	"github.com/tundish-io/tundish/workers/asynq"
)

// atSoak is n, or fewer where tests shall be quick.
func atSoak(n, quick int) int {
	if redistest.Soak {
		return n
	}
	return quick
}

// TestAsynqIsEven has two asynq servers of 50 workers each behind a bucket of 100/s. In a soak the same load then goes through asynq alone, with
// the limiter of its wiki at half the rate in each process.
func TestAsynqIsEven(t *testing.T) {
	const perSecond, servers, workers = 100, 2, 50
	tasks := atSoak(3000, 400)
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		redis := redistest.Start(t)
		s := start(t, redis, harness.Plan{Rate: perSecond, Dispatchers: 2, Asynq: harness.AsynqKeys(redis.URL())})
		for range servers {
			harness.StartAsynq(t, harness.AsynqPlan{Tasks: redis.URL(), Tundish: redis.URL(), Receiver: s.Receiver.URL, Workers: workers})
		}
		s.Post("even", tasks)
		ours := s.AwaitDelivered(time.Minute)
		t.Logf("Tundish and asynq: %s; most in 1s %d, most in 100ms %d", ours, ours.MostIn(time.Second), ours.MostIn(100*time.Millisecond))
		if err := ours.Err(); err != nil || len(ours.Duplicated) > 0 {
			t.Fatalf("%v; %d jobs ran more than once", err, len(ours.Duplicated))
		}
		// An asynq server polls every 25 to 75 ms when its queue is empty, which spreads the starts. The rest is for a busy machine.
		return stall.Crowded(ours.MostIn, perSecond, 200*time.Millisecond, 100*time.Millisecond, time.Second)
	})
	if redistest.Soak { // it is there for its figures
		asynqAlone(t, servers, workers, perSecond/servers, tasks)
	}
}

// asynqAlone runs tasks through asynq servers that each limit themselves to a rate.
func asynqAlone(t *testing.T, servers, workers, perSecond, tasks int) {
	t.Helper()
	alone := redistest.Start(t)
	client := hibiken.NewClientFromRedisClient(alone.Client())
	theirs := &checker.History{}
	receiver := serveHistory(t, theirs)
	for range servers {
		harness.StartAsynq(t, harness.AsynqPlan{Tasks: alone.URL(), Receiver: receiver, Workers: workers, Rate: float64(perSecond)})
	}
	for i := range tasks {
		id := fmt.Sprint("alone-", i)
		headers := map[string]string{asynq.HeaderJob: id, asynq.HeaderAttempt: "1"}
		if _, err := client.Enqueue(hibiken.NewTaskWithHeaders("email:send", nil, headers), hibiken.Queue(harness.AsynqQueue)); err != nil {
			t.Fatal(err)
		}
		theirs.Admitted(id, time.Now())
	}
	harness.Await(t, 3*time.Minute, "asynq alone has run all tasks", func() bool { return len(theirs.Check().Lost) == 0 })
	r := theirs.Check()
	t.Logf("asynq with the limiter of its wiki: %s; most in 1s %d, most in 100ms %d", r, r.MostIn(time.Second), r.MostIn(100*time.Millisecond))
}

// serveHistory is a receiver that notes what it gets. It returns its URL.
func serveHistory(t *testing.T, history *checker.History) string {
	t.Helper()
	server := httptest.NewServer(&checker.Receiver{History: history})
	t.Cleanup(server.Close)
	return server.URL
}
