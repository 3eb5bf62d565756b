package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// importing is an API with a bucket "crm" that takes jobs until it is told to hang up.
type importing struct {
	*httptest.Server
	redis *redis.Client
	left  atomic.Int64 // requests until it hangs up; below 0 never
	dir   string
}

func newImporting(t *testing.T) *importing {
	t.Helper()
	i := &importing{redis: redistest.Start(t).Client(), dir: t.TempDir()}
	b := bucket(t, "crm")
	b.Capacity = 100_000
	client := must.Get(producer.New(producer.Config{Redis: i.redis, Buckets: []shaper.Bucket{b}, Timeout: patience}))(t)
	t.Cleanup(client.Close)
	api := httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: client, BucketLimits: client, CheckJob: func(string, *shaper.Job) error { return nil },
	})
	i.left.Store(-1)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.left.Add(-1) == -1 {
			panic(http.ErrAbortHandler)
		}
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *importing) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(i.dir, name)
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (i *importing) jobs(t *testing.T) int64 {
	t.Helper()
	return i.redis.HLen(t.Context(), stored.Key("crm", "body")).Val()
}

func (i *importing) run(t *testing.T, args ...string) result {
	t.Helper()
	return runArgs(t.Context(), nil, "", append([]string{"producer", "import", "crm", "--server", i.URL, "--json"}, args...)...)
}

// Equal lines are as many jobs as there are, a second run makes none, and what can never get in is told with the reason.
func TestImport(t *testing.T) {
	t.Parallel()
	i := newImporting(t)
	path := i.file(t, "jobs.ndjson", `{"payload": {"a": 1}}
{"payload": {"a": 1}}
{"payload":{"a":1}}

{"id":"own","payload":2}
{"payload":3,"colour":"red"}
no JSON
[1]
{"id":"not one","payload":4}
{"method":"GET","path":"customers/7"}
`)
	for try, want := range []string{`"lines": 10`, `"admitted": 0`} {
		out := i.run(t, path)
		out.want(t, 1, want, "4 lines can never get in: see "+path+".rejects.ndjson")
		if try == 0 && !strings.Contains(out.out, `"admitted": 5`) || try == 1 && !strings.Contains(out.out, `"there_already": 5`) {
			t.Errorf("run %d: %s", try+1, out.out)
		}
		must.Equal(t, i.jobs(t), 5, "run %d: jobs", try+1)
	}
	text, err := os.ReadFile(path + ".rejects.ndjson")
	if err != nil || strings.Count(string(text), "\n") != 8 || !strings.Contains(string(text), `{"line":6,"reason":"invalid: colour: is not a field of a job"`) ||
		!strings.Contains(string(text), `{"line":7,"reason":"is not JSON`) {
		t.Errorf("the rejects are %s, %v", text, err)
	}
	var bodies []string
	for _, body := range i.redis.HGetAll(t.Context(), stored.Key("crm", "body")).Val() {
		_, payload, _ := strings.Cut(body, "\n")
		bodies = append(bodies, payload)
	}
	if joined := strings.Join(bodies, "|"); strings.Count(joined, `{"a": 1}`) != 2 || strings.Count(joined, `{"a":1}`) != 1 {
		t.Errorf("the payloads are %s", joined)
	}
}

// An import that breaks off goes on behind the last line that was answered, and no job is there twice or missing.
func TestImportGoesOn(t *testing.T) {
	t.Parallel()
	const lines = 2200
	i := newImporting(t)
	var text strings.Builder
	for n := range lines {
		fmt.Fprintf(&text, "{\"payload\":%d}\n", n/2) // each twice
	}
	path := i.file(t, "jobs.ndjson", text.String())
	i.left.Store(2)
	i.run(t, path).want(t, 5, "gave no answer", "send them again")
	must.Equal(t, i.jobs(t), 1000, "jobs are in")
	i.left.Store(-1)
	out := i.run(t, path, "--resume")
	out.want(t, 0, `"lines": 2200`, `"admitted": 2200`)
	must.Equal(t, i.jobs(t), lines, "jobs")
	if _, err := os.Stat(path + ".import"); !os.IsNotExist(err) {
		t.Errorf("what notes the progress is left: %v", err)
	}
	i.run(t, path).want(t, 0, `"there_already": 2200`)
	must.Equal(t, i.jobs(t), lines, "jobs after another run")
}

// Standard input is a file of which nothing is remembered.
func TestImportOfStandardInput(t *testing.T) {
	t.Parallel()
	i := newImporting(t)
	rejects := filepath.Join(i.dir, "rejects")
	const lines = "{\"payload\":1}\nno JSON\n{\"payload\":2}\n"
	for _, want := range []string{`"admitted": 2`, `"there_already": 2`} {
		runArgs(t.Context(), nil, lines, "producer", "import", "crm", "-", "--server", i.URL, "--json", "--rejects", rejects).
			want(t, 1, want, "1 line can never get in: see "+rejects)
	}
	if files, err := os.ReadDir("."); err != nil || slices.ContainsFunc(files, func(f os.DirEntry) bool { return strings.HasSuffix(f.Name(), ".import") }) {
		t.Errorf("%v, %v: what notes the progress is left", files, err)
	}
	i.run(t, "-", "--resume").want(t, 2, "--resume goes on in a FILE")
}

// Each row of a table makes a job by the template, and a row that makes none is rejected.
func TestImportOfATable(t *testing.T) {
	t.Parallel()
	i := newImporting(t)
	path := i.file(t, "customers.csv", "id,name\n7,\"Anna \"\"A\"\" /\"\n8/9,Bert\nshort\n")
	i.run(t, path, "--csv", "--template", `{"path":"customers/{{path .id}}","payload":{"name":{{json .name}}}}`).
		want(t, 1, `"admitted": 2`, `"rejected": 1`)
	all := fmt.Sprint(i.redis.HGetAll(t.Context(), stored.Key("crm", "body")).Val())
	if !strings.Contains(all, `{"u":"/customers/8%2F9"}`) || !strings.Contains(all, `{"name":"Anna \"A\" /"}`) {
		t.Errorf("the jobs are %s", all)
	}
	i.run(t, path, "--csv").want(t, 2, "--csv and --template go together")
	i.run(t, path, "--csv", "--template", "{{.id").want(t, 2, "--template: ")
	i.run(t, filepath.Join(i.dir, "none")).want(t, 2, "no such file")
}

// A row that ends nowhere is an error, and is not kept in memory whole.
func TestImportOfALongRow(t *testing.T) {
	t.Parallel()
	i := newImporting(t)
	for name, text := range map[string]string{
		"a field": "id,name\n7,Anna\n8,\"Bert\n", "the first row": "id,name",
	} {
		path := i.file(t, "long.csv", text)
		if err := os.Truncate(path, 600<<20); err != nil { // a hole, which takes no room on the disk
			t.Fatal(err)
		}
		i.run(t, path, "--csv", "--template", `{"payload":{{json .name}}}`).
			want(t, map[string]int{"a field": 1, "the first row": 2}[name], "is longer than 16777218 bytes: is a quotation mark missing")
	}
}
