package dispatcher

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
	"github.com/tundish-io/tundish/shaper/producer"
)

// lockedBuffer is a log of several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) lines(message string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		if strings.Contains(line, fmt.Sprintf("msg=%q", message)) {
			found = append(found, line)
		}
	}
	return found
}

// A job that fails again and again is listed with its last attempts and given up when max_age has passed. One that waited for
// longer before its first attempt is not. Attempts are counted by reason, and logged.
func TestAttemptsAndMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := miniredis.NewMiniRedis()
		t.Cleanup(mini.Close)
		conn := redis.NewClient(&redis.Options{
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mini.Dial() },
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { _ = conn.Close() })
		b := rig.Bucket("b", 1000)
		b.Retry.MaxAge, b.Retry.KeepAttempts = 2*time.Minute, 2
		b.Retry = b.Retry.WithSchedule(20 * time.Second)
		b.Retry.MaxAttempts = 100
		client := must.Get(rig.NewActors(producer.Config{Redis: conn, Buckets: []shaper.Bucket{b}}))(t)
		worker := shaper.WorkerFunc(func(_ context.Context, a *shaper.Attempt) shaper.Outcome {
			switch a.ID {
			case "fails":
				outcome := shaper.Retry("http_500", strings.Repeat("€", 100))
				outcome.Status, outcome.Body, outcome.Signal = 500, "oops", shaper.SignalNone
				<-time.After(time.Second) // of the bubble
				return outcome
			case "gone":
				return shaper.Outcome{Result: shaper.ResultDead, Status: 410, Reason: "gone", Detail: "by " + shaper.HiddenAddress, Private: "by 10.0.0.7:443"}
			case "late":
				if a.Number < 3 {
					return shaper.Retry("timeout", "")
				}
			}
			return shaper.Done(200)
		})
		log, registry := &lockedBuffer{}, prometheus.NewPedanticRegistry()
		d := must.Get(New(Config{
			Redis: conn, Buckets: []shaper.Bucket{b}, Workers: rig.Workers([]shaper.Bucket{b}, worker), Registerer: registry,
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		}))(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		for _, job := range []shaper.Job{
			{ID: "fails"}, {ID: "gone"}, {ID: "fine"}, {ID: "late", Delay: 5 * time.Minute}, {ID: "expires", Delay: time.Minute, ExpiresIn: time.Second},
		} {
			job.Bucket, job.Payload = "b", []byte("x")
			if receipts, err := client.Enqueue(t.Context(), job); err != nil || receipts[0].Refusal != nil {
				t.Fatalf("%+v, %v", receipts, err)
			}
		}
		began := time.Now()
		<-time.After(50 * time.Second)
		info, err := client.Job(t.Context(), "b", "fails")
		if err != nil || info.State != shaper.StateRetrying || len(info.LastAttempts) != 2 || info.Attempts < 2 {
			t.Errorf("%+v, %v", info, err)
		}
		for i, a := range info.LastAttempts {
			if at := a.At.Sub(began); a.Number != info.Attempts-1+i || a.Took != time.Second || a.Status != 500 || a.Reason != "http_500" ||
				a.Detail != strings.Repeat("€", 66) || a.Result != shaper.ResultRetry || at < 0 || at > 50*time.Second {
				t.Errorf("attempt %d: %+v", i, a)
			}
		}
		<-time.After(9 * time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		died := map[string]shaper.JobInfo{}
		dead := must.Get(client.Op.Bucket("b").Dead().List(t.Context(), 0, 10))(t)
		for _, letter := range dead {
			died[letter.ID] = letter
		}
		must.Be(t, len(dead), 3, "dead letters %+v", dead)
		fails, gone := died["fails"], died["gone"]
		if fails.Last.Cause != shaper.CauseMaxAge || fails.Last.Reason != "http_500" || fails.Last.Body != "oops" || len(fails.LastAttempts) != 2 ||
			fails.Attempts < 5 || fails.Attempts > 7 {
			t.Errorf("%+v", fails)
		}
		if a := gone.LastAttempts; len(a) != 1 || a[0].Result != shaper.ResultDead || a[0].Reason != "gone" || a[0].Status != 410 || a[0].Private != "by 10.0.0.7:443" ||
			a[0].Detail != "by (address)" || gone.Last.Detail != a[0].Detail {
			t.Errorf("%+v", gone)
		}
		kept, err := conn.HKeys(t.Context(), store.BucketKeys("b").Attempts()).Result()
		if err != nil || len(kept) != 2 {
			t.Errorf("attempts of %q are kept, %v", kept, err)
		}

		counted := rig.Scrape(t, registry, "tundish_attempts_total")
		want := map[string]float64{
			"{bucket=b,outcome=done,reason=2xx}": 2, "{bucket=b,outcome=dead,reason=gone}": 1, "{bucket=b,outcome=retry,reason=timeout}": 2,
			"{bucket=b,outcome=retry,reason=http_500}": float64(fails.Attempts),
		}
		for series, n := range want {
			if got := counted["tundish_attempts_total"+series]; got != n {
				t.Errorf("%s is %f, want %f: %v", series, got, n, counted)
			}
		}
		must.Equal(t, len(counted), len(want), "series %v", counted)
		must.Equal(t, rig.Scrape(t, registry, "tundish_dead_letters_total")["tundish_dead_letters_total{bucket=b}"], 3, "dead letters are counted")
		must.Equal(t, rig.Scrape(t, registry, "tundish_jobs_expired_total")["tundish_jobs_expired_total{bucket=b}"], 1, "expired jobs are counted")
		failed, deaths := log.lines("an attempt failed"), log.lines("a job is dead")
		if len(failed) < 3 || !strings.Contains(failed[0], "bucket=b job=fails number=1 result=retry reason=http_500 status=500") {
			t.Errorf("failed attempts: %q", failed)
		}
		all := strings.Join(deaths, "")
		for _, text := range []string{
			"job=gone cause=permanent reason=gone status=410 attempts=1", "job=expires cause=expired", fmt.Sprint("job=fails cause=max-age attempts=", fails.Attempts),
		} {
			if !strings.Contains(all, text) || len(deaths) != 3 {
				t.Errorf("no %q in the log: %s", text, all)
			}
		}
	})
}
