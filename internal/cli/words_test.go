package cli_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
)

// lacks fails the test if what a command printed has one of the texts.
func (r result) lacks(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(r.out+r.err, text) {
			t.Errorf("there is %q in\n%s%s", text, r.out, r.err)
		}
	}
}

// In a bucket with flows the delayed jobs and retries are among those that wait: no number says that there are none. What is counted of its
// flows is said, because a list of them has more.
func TestBucketWithFlowsSaysWhatItCounts(t *testing.T) {
	t.Parallel()
	s := partedSite(t, false, "acme", "acme", "b")
	s.run(t, "dispatcher flow set tenants quiet --create --weight 2").want(t, 0)
	shown := s.run(t, "dispatcher bucket show tenants")
	shown.want(t, 0, "waiting     3, delayed jobs and retries among them", "scheduled   0 delayed jobs (at most ",
		"flows       2 flows with jobs, or with jobs lately; 2 of them have something to send (flow list also has flows with settings alone)")
	shown.lacks(t, "later", "retries: 0")
	s.run(t, "dispatcher flow list tenants").want(t, 0, "quiet")
	s.run(t, "dispatcher bucket list").want(t, 0, "LATER", "  -      0     ")
	s.run(t, "dispatcher bucket show webhooks").want(t, 0, "later       0: 0 scheduled (at most 10000), retries: 0")

	s = partedSite(t, true, "eu/acme", "us/b")
	s.run(t, "dispatcher bucket show tenants").want(t, 0, "groups      2 groups with jobs, or with jobs lately; 2 of them have something to send (group list ",
		"flows       2 flows with jobs, or with jobs lately (flow list ")
}

// A time that holds only if the next probe of a circuit breaker succeeds is told as the earliest one.
func TestTimesBehindAnOpenBreakerAreTheEarliest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "a")
	s.run(t, "dispatcher bucket show webhooks").lacks(t, "at the earliest")
	s.run(t, "dispatcher job show webhooks a").lacks(t, "at the earliest")
	pace, until := stored.Key("webhooks", "pace"), time.Now().Add(time.Hour)
	for breaker, told := range []bool{false, true, true} {
		s.redis.HSet(t.Context(), pace, "down", heldText(until, breaker))
		inBucket, inJob := s.run(t, "dispatcher bucket show webhooks"), s.run(t, "dispatcher job show webhooks a")
		if !told { // a hold ends when the receiver said
			inBucket.lacks(t, "at the earliest")
			inJob.lacks(t, "at the earliest")
			continue
		}
		inBucket.want(t, 0, "(empty: unknown: no dispatcher runs)", "circuit breaker ")
		inJob.want(t, 0, "leaves    ", " at the earliest)")
	}
	s.redis.HSet(t.Context(), pace, "down", heldText(time.Now().Add(-time.Hour), 1)) // its next departure is the probe
	s.run(t, "dispatcher job show webhooks a").want(t, 0, "the next departure is the probe", " at the earliest)")
}

// Of a flow that is held, paused or disabled, no turn is shown at which nothing will leave.
func TestTurnOfAFlowIsATrueOne(t *testing.T) {
	t.Parallel()
	s := partedSite(t, false, "acme", "b")
	key, until := stored.Key("tenants", ""), time.Now().Add(time.Hour)
	s.run(t, "dispatcher flow show tenants b").want(t, 0, "turn       ")
	for _, flow := range []string{"acme", "b"} {
		text := s.redis.HGet(t.Context(), key+"flows", flow).Val()
		s.redis.HSet(t.Context(), key+"flows", flow, "@"+heldText(until, 1)+" "+text)
	}
	s.redis.HSet(t.Context(), key+"count", "open", 2)
	shown := s.run(t, "dispatcher flow show tenants b")
	shown.want(t, 0, "the next probe may leave at ")
	shown.lacks(t, "turn ")
	s.run(t, "dispatcher flow show tenants b --json").lacks(t, `"turn"`)
	s.run(t, "dispatcher bucket show tenants").want(t, 0, "(empty: unknown: no dispatcher runs)", "circuit breaker open: 2")
}

// A flow of which Redis holds nothing is told as such: its name may be mistyped. A flow that is idle and has settings is not.
func TestFlowOfWhichNothingIsKnown(t *testing.T) {
	t.Parallel()
	s := partedSite(t, false, "acme")
	const told = "flow cust-8888 has no jobs and no settings of its own: either its last job has left, as an idle flow is forgotten, or the name is not right"
	s.run(t, "dispatcher flow show tenants cust-8888").want(t, 0, "note       "+told)
	s.run(t, "dispatcher flow show tenants cust-8888 --json").want(t, 0, `"unknown": true`)
	s.run(t, "dispatcher flow enable tenants cust-8888").want(t, 0, "was not disabled: cust-8888", told)
	s.run(t, "dispatcher flow release tenants cust-8888").want(t, 0, "had nothing to release: cust-8888", told)
	s.run(t, "dispatcher flow resume tenants cust-8888").want(t, 0, "was not paused: cust-8888", told)
	s.run(t, "dispatcher flow reset tenants cust-8888").want(t, 0, "had no settings of its own: cust-8888", told)
	s.run(t, "dispatcher flow pause tenants cust-8888").want(t, 4, "has no flow")

	s.run(t, "dispatcher flow set tenants idle --create --weight 2").want(t, 0)
	for _, flow := range []string{"acme", "idle"} {
		s.run(t, "dispatcher flow show tenants "+flow).lacks(t, "has no jobs")
		s.run(t, "dispatcher flow show tenants "+flow+" --json").lacks(t, "unknown")
		s.run(t, "dispatcher flow enable tenants "+flow).lacks(t, "has no jobs")
	}
	s.run(t, "dispatcher flow reset tenants idle").want(t, 0, "reset: idle")
	s.run(t, "dispatcher flow reset tenants idle").want(t, 0, "flow idle has no jobs and no settings of its own: ")
	s = partedSite(t, true, "eu/acme")
	s.run(t, "dispatcher group show tenants us").want(t, 0, "group us has no jobs and no settings of its own: ")
	s.run(t, "dispatcher flow show tenants acme --group us").want(t, 0, "flow acme has no jobs and no settings of its own: ")
}

// A word of the wrong filter is told, as nothing can match it.
func TestWordOfTheOtherFilter(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "a")
	s.deliver(t, 1, shaper.Dead("gone", "410 Gone"))
	const told = `"permanent" is a cause, and --reason filters by the reason of the last response: did you mean --cause permanent?`
	for _, words := range []string{"list webhooks", "redrive webhooks --dry-run", "drop webhooks --dry-run", "export webhooks"} {
		if r := s.run(t, "dispatcher dead "+words+" --reason permanent"); r.code != 0 || strings.Count(r.err, told) != 1 {
			t.Errorf("dead %s: %+v", words, r)
		}
	}
	s.run(t, "dispatcher dead list webhooks --reason permanent --json").want(t, 0, "[]", told)
	s.run(t, "dispatcher dead list webhooks --reason gone").lacks(t, "did you mean")
	s.run(t, "dispatcher dead list webhooks --reason timeout").lacks(t, "did you mean")
	for _, reason := range []string{"gone", "http_500"} {
		s.run(t, "dispatcher dead list webhooks --cause "+reason).
			want(t, 2, "--cause "+reason+": that is no cause, but a reason of a last response: use --reason "+reason)
	}
	s.enqueue(t, "webhooks", "b")
	s.deliver(t, 1, shaper.Dead("permanent", "a reason of a program's own"))
	s.run(t, "dispatcher dead list webhooks --reason permanent").lacks(t, "did you mean")
}

// A delivery that spent no attempt is told with the reason that the data knows. The numbers of all rows agree.
func TestDeliveriesThatSpentNoAttempt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.enqueue(t, "webhooks", "a")
	s.deliver(t, 1, shaper.Retry("http_500", "sorry"))
	s.run(t, "dispatcher job show webhooks a").want(t, 0, "attempts     1\n")
	s.deliver(t, 1, shaper.Outcome{Result: shaper.ResultHeld, Reason: "http_429", Status: 429, RetryAfter: time.Millisecond})
	shown := s.run(t, "dispatcher job show webhooks a")
	shown.want(t, 0, "attempts     1 of 2 deliveries; 1 held: the receiver named a time to wait for, or it was the probe of a circuit breaker\n",
		"attempt 1    ", "attempt 2    ")
	shown.lacks(t, "lost", "died")

	meta := stored.Key("webhooks", "meta") // "state epoch attempts lost crashes claim last"
	fields := strings.SplitN(s.redis.HGet(t.Context(), meta, "a").Val(), " ", 7)
	fields[3] = "3"
	s.redis.HSet(t.Context(), meta, "a", strings.Join(fields, " "))
	s.run(t, "dispatcher job show webhooks a").want(t, 0, "1 of 4 deliveries; 1 held: ", "; 2 without an outcome: its dispatcher died, or lost its lease\n")
	s.redis.HDel(t.Context(), stored.Key("webhooks", "attempts"), "a")
	s.run(t, "dispatcher job show webhooks a").
		want(t, 0, "1 of 4 deliveries; 3 of which nothing is kept: it was held, or its dispatcher died or lost its lease\n")
}

// A job without a result says why it has none, and a job that is done names the command that shows its result.
func TestResultsAreExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.own.Results.Retention = time.Hour
	s.redis.Del(t.Context(), stored.Key("webhooks", "settings"))
	s.enqueue(t, "webhooks", "a")
	s.deliver(t, 1, shaper.Outcome{Result: shaper.ResultDone, Status: 200, Answer: &shaper.Answer{Status: 200, Body: []byte("ok")}})
	s.run(t, "dispatcher job show webhooks a").want(t, 0, "result  is kept: dispatcher job result webhooks a")
	s.run(t, "dispatcher job show webhooks a --json").lacks(t, "is kept")
	s.run(t, "dispatcher job list webhooks --state done").want(t, 0, "a ", "that is all that the bucket keeps")
	s.run(t, "dispatcher job list webhooks --state done --json").lacks(t, "keeps")
	if listed := s.run(t, "dispatcher job list webhooks --state done"); !regexp.MustCompile(`\d\d:\d\d:\d\dZ, `).MatchString(listed.out) {
		t.Errorf("no time of the day: %s", listed.out)
	}
	s.run(t, "dispatcher job list webhooks").want(t, 0, "has no such job that waits or is in flight")
	s.run(t, "dispatcher job result webhooks a").want(t, 0, "enqueued ", "ok")
	s.enqueue(t, "webhooks", "b", "c")
	s.run(t, "dispatcher job cancel webhooks b").want(t, 0)
	s.run(t, "dispatcher job result webhooks b").want(t, 4, `job "b" is cancelled: it has no result`)
	s.run(t, "dispatcher job show webhooks b").lacks(t, "result")
	s.deliver(t, 1, shaper.Dead("gone", "410 Gone"))
	s.enqueue(t, "webhooks", "d")
	s.run(t, "dispatcher job list webhooks --state any").want(t, 0, "ID  STATE   ", "d   queued  ", "c   dead    ", "a   done    ", "200  ", "gone")
	s.run(t, "dispatcher job list webhooks --state any --limit 1 --json").want(t, 0, `"id": "d"`, `"id": "c"`, `"id": "a"`)
	s.run(t, "dispatcher job list webhooks --state any --until 1h").want(t, 0, "has no such job: none waits")
	s.run(t, "dispatcher job list webhooks --state any --after x").want(t, 2, "--after goes with one --state")
	s.redis.Del(t.Context(), stored.Key("webhooks", "results"))
	s.run(t, "dispatcher job result webhooks c").want(t, 4, `job "c" is dead (permanent), and no result is kept: the bucket keeps results for result_retention`,
		"The job itself has its last response")
	meta := stored.Key("webhooks", "meta")
	text := strings.SplitN(s.redis.HGet(t.Context(), meta, "c").Val(), " ", 7)
	text[2], text[6] = "0", `{"cause":"flow-disabled"}`
	s.redis.HSet(t.Context(), meta, "c", strings.Join(text, " "))
	s.run(t, "dispatcher job result webhooks c").want(t, 4, `job "c" is dead (flow-disabled) and was never sent: there was no answer`)
}

// What was answered at a time is found by each attempt that is kept of a job that is done, not by its last one alone. Where none is found, the reason is
// true: what was asked, how many results there are and since when.
func TestDeliveriesAreFoundByTime(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.run(t, "dispatcher job list webhooks --state done").want(t, 0, `bucket "webhooks" has taken no job yet`)
	s.enqueue(t, "webhooks", "b")
	s.run(t, "dispatcher job list webhooks --state done").want(t, 0, `bucket "webhooks" keeps no jobs that are done: set result_retention`)
	s.run(t, "dispatcher job cancel webhooks b").want(t, 0)
	s.own.Results.Retention, s.own.Results.MaxBody = time.Hour, 0
	s.redis.Del(t.Context(), stored.Key("webhooks", "settings"))
	s.enqueue(t, "webhooks", "a")
	s.deliver(t, 1, shaper.Outcome{Result: shaper.ResultRetry, Status: 503, Reason: "http_503"})
	s.run(t, "dispatcher job list webhooks --state done").want(t, 0, `keeps no job that is done yet: it keeps each for 1h0m0s (result_retention)`)
	s.deliver(t, 1, shaper.Done(200))
	var jobs []opsview.Job
	if listed := s.run(t, "dispatcher job list webhooks --state done --json"); json.Unmarshal([]byte(listed.out), &jobs) != nil || len(jobs) != 1 || len(jobs[0].LastAttempts) != 2 {
		t.Fatal(listed.out)
	}
	first, second := jobs[0].LastAttempts[0].At, jobs[0].LastAttempts[1].At
	during := func(at time.Time) result {
		return s.run(t, "dispatcher job list webhooks --state done --since "+at.Format(time.RFC3339Nano)+" --until "+at.Add(time.Microsecond).Format(time.RFC3339Nano))
	}
	then := during(first)
	then.want(t, 0, "503     http_503  1 of 2")
	then.lacks(t, "200")
	during(second).want(t, 0, "200     -       2 of 2")
	during(first.Add(-time.Hour)).want(t, 0, `bucket "webhooks" keeps no job that is done, sent at `, " or later and before ", ". Results that it keeps: 1, the oldest of ", "(result_retention is 1h0m0s)")
}

// A job that was handed to asynq is in flight, and may have been started by no server: bucket show says where to look.
func TestInFlightInAsynq(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newPlan(t, server.URL(), "rate = \"200/s\"\nworker = \"asynq\"\nasynq = { queue = \"default\" }\n[[buckets]]\nname = \"others\"\nrate = \"1/s\"")
	dispatcher, producer := start(t, p.env, "dispatcher run"), start(t, p.env, "producer serve")
	dispatcher.ready(t, p.ops)
	producer.ready(t, p.api)
	command(t.Context(), p.env, "", "dispatcher bucket show webhooks").lacks(t, "asynq")
	runArgs(t.Context(), p.env, "", "producer", "send", "webhooks", "1", "--id", "a", "--header", "Asynq-Task: email:send").want(t, 0)
	eventually(t, "it is handed over", func() bool { return server.Client().LLen(t.Context(), "asynq:{default}:pending").Val() == 1 })
	shown := command(t.Context(), p.env, "", "dispatcher bucket show webhooks")
	shown.want(t, 0, "in flight   1 of ", "jobs in flight were handed to asynq; to see whether a server has started them, use ")
	must.Equal(t, [2]int{producer.end(), dispatcher.end()}, [2]int{}, "the exit codes are")
}
