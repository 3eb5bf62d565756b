package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestOrphan: a bucket that left the configuration keeps its jobs and delivers none
// of them. It is shown as orphaned, its jobs and its dead letters can be read, by the
// command line and by HTTP, and it goes on where it stopped when it is back.
func TestOrphan(t *testing.T) {
	t.Parallel()
	const jobs, dead = 20, "dead-0"
	server := redistest.Start(t)
	s := start(t, server, harness.Plan{Rate: 200, Dispatchers: 1, Respond: func(w http.ResponseWriter, _ *http.Request, id string, attempt int) {
		if id == dead && attempt == 1 {
			w.WriteHeader(http.StatusGone)
		}
	}})
	s.Post("dead", 1)
	harness.Await(t, 10*time.Second, "it is dead", func() bool { return server.Client().ZCard(t.Context(), s.Key("dead")).Val() == 1 })
	s.Operate("pause", harness.BucketName)
	s.Post("waits", jobs)
	s.Dispatchers[0].Stop(t)
	s.Operate("resume", harness.BucketName)
	api := redistest.FreeAddr(t)
	without := s.Rewritten("without.toml", fmt.Sprintf("name = %q", harness.BucketName), `name = "others"`, strings.TrimPrefix(s.API, "http://"), api)
	harness.Run(t, s.Ops, "dispatcher", "run", "--config", without)
	harness.Run(t, "http://"+api, "producer", "serve", "--config", without)

	var views []struct {
		Name             string
		Orphaned         bool
		Unfinished, Dead int
	}
	if err := json.Unmarshal([]byte(harness.Command(t, 0, "dispatcher", "bucket", "list", "--json", "--config", without)), &views); err != nil {
		t.Fatal(err)
	}
	t.Logf("bucket list: %+v", views)
	if len(views) != 2 || views[0].Orphaned || views[1].Name != harness.BucketName || !views[1].Orphaned || views[1].Unfinished != jobs || views[1].Dead != 1 {
		t.Errorf("bucket list shows %+v", views)
	}
	get := func(url string, want int, parts ...string) {
		t.Helper()
		response, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != want {
			t.Errorf("GET %s: %d %s, want %d, %v", url, response.StatusCode, answer, want, err)
		}
		for _, part := range parts {
			if !strings.Contains(string(answer), part) {
				t.Errorf("GET %s: %s, want %s in it", url, answer, part)
			}
		}
	}
	for _, c := range []struct{ words, want string }{
		{"bucket list", "not in the configuration"},
		{"bucket show " + harness.BucketName, "20 of"},
		{"bucket show " + harness.BucketName, "not in the configuration here: its last job left "}, // within a minute
		{"job show " + harness.BucketName + " waits-3", `{"n":3}`},
		{"job show " + harness.BucketName + " waits-3", "queued"},
		{"job show " + harness.BucketName + " " + dead, "410 Gone"},
		{"dead list " + harness.BucketName, dead},
		{"dead show " + harness.BucketName + " " + dead, "410 Gone"},
	} {
		if out := harness.Command(t, 0, "dispatcher", append(strings.Fields(c.words), "--config", without)...); !strings.Contains(out, c.want) {
			t.Errorf("dispatcher %s: no %q in\n%s", c.words, c.want, out)
		}
	}
	harness.Command(t, 4, "dispatcher", "job", "show", "nobody", "waits-3", "--config", without)
	get(s.Ops+"/v1/buckets", http.StatusOK, harness.BucketName, `"orphaned":true`)
	get(s.Ops+"/v1/buckets/"+harness.BucketName, http.StatusOK, `"orphaned":true`, `"waiting":20`, `"dead":1`)
	get("http://"+api+"/v1/buckets/"+harness.BucketName+"/jobs/waits-3", http.StatusOK, `"state":"queued"`, `"payload":{"n":3}`)
	get("http://"+api+"/v1/buckets/"+harness.BucketName+"/jobs/"+dead, http.StatusOK, `"state":"dead"`)
	get("http://"+api+"/v1/buckets/nobody/jobs/"+dead, http.StatusNotFound, "unknown-bucket")
	if n := s.History.Check().Delivered; n != 1 {
		t.Errorf("%d deliveries while it is an orphan", n)
	}

	s.Restart[0]() // the configuration that has it
	s.AwaitDelivered(20 * time.Second)
	r := s.History.Check()
	t.Log(r)
	if r.Err() != nil || r.Extra > 0 {
		t.Errorf("%v, %d came twice", r.Err(), r.Extra)
	}
}
