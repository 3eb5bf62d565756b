package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// rewritten is the configuration of the producer with some text replaced, as a file.
func (s *system) rewritten(name string, oldnew ...string) (path string) {
	s.t.Helper()
	text, err := os.ReadFile(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(string(text), oldnew[i]) {
			s.t.Fatalf("the configuration has no %q:\n%s", oldnew[i], text)
		}
	}
	path = filepath.Join(filepath.Dir(s.config), name)
	if err := os.WriteFile(path, []byte(strings.NewReplacer(oldnew...).Replace(string(text))), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// operate runs `dispatcher bucket …` and returns what it prints.
func (s *system) operate(args ...string) string {
	s.t.Helper()
	args = append([]string{"bucket"}, append(args, "--config", s.config)...)
	out, err := exec.CommandContext(s.t.Context(), filepath.Join(programs, "dispatcher"), args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("dispatcher %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// command runs a program to its end and returns what it prints to stdout.
func command(t *testing.T, wantCode int, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(programs, program), args...).Output()
	code, said := 0, ""
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code, said = exit.ExitCode(), string(exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	if code != wantCode {
		t.Fatalf("%s %v: exit code %d, want %d\n%s%s", program, args, code, wantCode, out, said)
	}
	return string(out)
}

// TestOrphan: a bucket that left the configuration keeps its jobs and delivers none
// of them. It is shown as orphaned, its jobs and its dead letters can be read, by the
// command line and by HTTP, and it goes on where it stopped when it is back.
func TestOrphan(t *testing.T) {
	t.Parallel()
	const jobs, dead = 20, "dead-0"
	server := redistest.Start(t)
	s := start(t, server, plan{rate: 200, dispatchers: 1, respond: func(w http.ResponseWriter, _ *http.Request, id string, attempt int) {
		if id == dead && attempt == 1 {
			w.WriteHeader(http.StatusGone)
		}
	}})
	s.post("dead", 1)
	await(t, 10*time.Second, "it is dead", func() bool { return server.Client().ZCard(t.Context(), s.key("dead")).Val() == 1 })
	s.operate("pause", bucketName)
	s.post("waits", jobs)
	s.dispatchers[0].stop(t)
	s.operate("resume", bucketName)
	api := redistest.FreeAddr(t)
	without := s.rewritten("without.toml", fmt.Sprintf("name = %q", bucketName), `name = "others"`, strings.TrimPrefix(s.api, "http://"), api)
	run(t, s.ops, "dispatcher", "run", "--config", without)
	run(t, "http://"+api, "producer", "serve", "--config", without)

	var views []struct {
		Name             string
		Orphaned         bool
		Unfinished, Dead int
	}
	if err := json.Unmarshal([]byte(command(t, 0, "dispatcher", "bucket", "list", "--json", "--config", without)), &views); err != nil {
		t.Fatal(err)
	}
	t.Logf("bucket list: %+v", views)
	if len(views) != 2 || views[0].Orphaned || views[1].Name != bucketName || !views[1].Orphaned || views[1].Unfinished != jobs || views[1].Dead != 1 {
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
		{"bucket show " + bucketName, "20 of"},
		{"bucket show " + bucketName, "not in the configuration here: its last job left "}, // within a minute
		{"job show " + bucketName + " waits-3", `{"n":3}`},
		{"job show " + bucketName + " waits-3", "queued"},
		{"job show " + bucketName + " " + dead, "410 Gone"},
		{"dead list " + bucketName, dead},
		{"dead show " + bucketName + " " + dead, "410 Gone"},
	} {
		if out := command(t, 0, "dispatcher", append(strings.Fields(c.words), "--config", without)...); !strings.Contains(out, c.want) {
			t.Errorf("dispatcher %s: no %q in\n%s", c.words, c.want, out)
		}
	}
	command(t, 4, "dispatcher", "job", "show", "nobody", "waits-3", "--config", without)
	get(s.ops+"/v1/buckets", http.StatusOK, bucketName, `"orphaned":true`)
	get(s.ops+"/v1/buckets/"+bucketName, http.StatusOK, `"orphaned":true`, `"waiting":20`, `"dead":1`)
	get("http://"+api+"/v1/buckets/"+bucketName+"/jobs/waits-3", http.StatusOK, `"state":"queued"`, `"payload":{"n":3}`)
	get("http://"+api+"/v1/buckets/"+bucketName+"/jobs/"+dead, http.StatusOK, `"state":"dead"`)
	get("http://"+api+"/v1/buckets/nobody/jobs/"+dead, http.StatusNotFound, "unknown-bucket")
	if n := s.history.Check().Delivered; n != 1 {
		t.Errorf("%d deliveries while it is an orphan", n)
	}

	s.restart[0]() // the configuration that has it
	s.awaitDelivered(20 * time.Second)
	r := s.history.Check()
	t.Log(r)
	if r.Err() != nil || r.Extra > 0 {
		t.Errorf("%v, %d came twice", r.Err(), r.Extra)
	}
}
