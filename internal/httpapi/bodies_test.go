package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// allocated is how many bytes do takes from the heap, those given back included. Only where no
// other test runs meanwhile.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A body costs no more than itself, however many jobs or headers it seems to have.
func TestBodiesOfManyPieces(t *testing.T) { //nolint:paralleltest // measures the heap
	var names []string
	for i := range 700_000 {
		names = append(names, fmt.Sprintf(`"h%07d":""`, i))
	}
	job := []byte(`{"payload":1,"headers":{` + strings.Join(names, ",") + `}}`)
	lines, array := []byte(strings.Repeat("1\n", 4<<20)), []byte("["+strings.Repeat("1,", 4<<20)+"1]")
	split := func(kind string, body []byte) error {
		_, f := httpapi.SplitBatch(kind, body)
		return errors.New(f.Detail)
	}
	for name, do := range map[string]func() error{
		"lines":   func() error { return split("application/x-ndjson", lines) },
		"array":   func() error { return split("application/json", array) },
		"headers": func() error { _, err := httpapi.DecodeJob(job); return err },
	} {
		var err error
		if took := allocated(func() { err = do() }); took > 1<<20 {
			t.Errorf("%s: took %d bytes of the heap", name, took)
		}
		if err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBatchIsCutAtTheBound(t *testing.T) {
	t.Parallel()
	for kind, batch := range map[string]string{
		"application/x-ndjson": strings.Repeat("1\n\n", 1000),
		"application/json":     " [ " + strings.Repeat(`{"a":[1,{"b":"]},{\"\\"}]} , `, 999) + "[]\n] ",
	} {
		items, f := httpapi.SplitBatch(kind, []byte(batch))
		if f != nil || len(items) != 1000 {
			t.Errorf("%s: %d jobs, %v", kind, len(items), f)
		}
	}
	none := func(context.Context) ([]shaper.Receipt, error) { return nil, nil }
	api := serveFake(t, &fake{enqueue: none}, &logBuffer{})
	for kind, batch := range map[string]string{
		"application/x-ndjson": strings.Repeat("1\n", 1001),
		"application/json":     "[" + strings.Repeat("1,", 1000) + "1]",
	} {
		a := api.do("POST", jobs+"/batch", batch, "Content-Type", kind).want(http.StatusRequestEntityTooLarge, "too-large")
		a.has("detail", "the batch has more than 1000 jobs: send it in parts")
	}
	// A job of a batch may be as large as it might be alone.
	large := `{"payload":1,"flow":"` + strings.Repeat("x", 65<<10) + `"}`
	api.do("POST", jobs, large).want(http.StatusRequestEntityTooLarge, "too-large")
	must.Equal(t, api.do("POST", jobs+"/batch", "["+large+"]").want(http.StatusBadRequest, "invalid").statuses(), "413", "alone in a batch")
}

func TestHeadersAreCountedWhileRead(t *testing.T) {
	t.Parallel()
	job := func(n int) []byte {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf(`"h%d":"v"`, i)
		}
		return []byte(`{"payload":1,"headers":{` + strings.Join(names, ",") + `}}`)
	}
	must.Equal(t, len(must.Get(httpapi.DecodeJob(job(shaper.MaxHeaders)))(t).Headers), shaper.MaxHeaders, "headers")
	if _, err := httpapi.DecodeJob(job(shaper.MaxHeaders + 1)); err == nil || err.Error() != "headers: more than 64 of them: at most 64 are taken" {
		t.Error(err)
	}
}

// The bodies of all requests share one memory, until their requests are answered. No caller takes more than it leaves to the others, but for one
// body of any size.
func TestBodyMemory(t *testing.T) {
	t.Parallel()
	entered, proceed := make(chan struct{}), make(chan struct{})
	f := &fake{bucket: buckets(t)[0]}
	var calls atomic.Int64
	f.enqueue = func(context.Context) ([]shaper.Receipt, error) {
		if calls.Add(1) == 1 {
			close(entered)
			<-proceed
		}
		return []shaper.Receipt{{ID: "a", Bucket: "roomy", State: shaper.StateQueued}}, nil
	}
	keys := []apikey.Key{keyOf("a", []string{"*"}, apikey.RoleEnqueue), keyOf("b", []string{"*"}, apikey.RoleEnqueue)}
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, BodyMemory: 60 << 10, Keys: keys}))
	release := sync.OnceFunc(func() { close(proceed) })
	t.Cleanup(release)
	body := strings.Repeat(" ", 20<<10) + job("")
	first := make(chan *answer, 1)
	go func() { first <- api.as("a", "POST", jobs, body) }()
	<-entered
	api.as("b", "POST", jobs, body).want(http.StatusServiceUnavailable, "overloaded").wantHeader("Retry-After", "1")
	api.as("a", "POST", jobs, job("")).want(http.StatusServiceUnavailable, "overloaded") // it has two thirds already
	chunked := must.Get(http.NewRequestWithContext(t.Context(), "POST", api.http.URL+jobs, struct{ io.Reader }{strings.NewReader(body)}))(t)
	chunked.Header.Set("Content-Type", "application/json")
	chunked.Header.Set("Authorization", "Bearer b")
	response, err := api.http.Client().Do(chunked)
	must.OK(t, err)
	if response.Body.Close(); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a body of unknown length: status %d", response.StatusCode)
	}
	api.as("b", "POST", jobs, job("")).want(http.StatusAccepted, "") // a small one has room
	release()
	(<-first).want(http.StatusAccepted, "")
	api.as("b", "POST", jobs, body).want(http.StatusAccepted, "")
}

// A body counts twice, so none may have more than half of the memory. One that may fits.
func TestLargestBody(t *testing.T) {
	t.Parallel()
	f := &fake{bucket: buckets(t)[0], enqueue: func(context.Context) ([]shaper.Receipt, error) {
		return []shaper.Receipt{{ID: "a", Bucket: "roomy", State: shaper.StateQueued}}, nil
	}}
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, BodyMemory: 60 << 10}))
	body := strings.Repeat(" ", 30<<10-len(job(""))) + job("")
	api.do("POST", jobs, body).want(http.StatusAccepted, "")
	api.do("POST", jobs, " "+body).want(http.StatusRequestEntityTooLarge, "too-large").
		has("detail", "the body has more than 30720 bytes: no larger one fits into the memory of producer.body_memory, where a body counts twice")
}

// FuzzPieces holds pieces to what encoding/json makes of the same array or object.
func FuzzPieces(f *testing.F) {
	for _, seed := range []string{`[]`, `{}`, ` [1, "a,]\"" ,[{"b":[]}]]`, `{"a" : {"b":[1,2]}, "\"":null}`, `["\\",2]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var array []json.RawMessage
		if json.Unmarshal(data, &array) != nil || array == nil {
			return
		}
		var got []json.RawMessage
		httpapi.Pieces(data, func(piece []byte) bool { got = append(got, piece); return true })
		if !slices.EqualFunc(array, got, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
			t.Errorf("%q: %q, want %q", data, got, array)
		}
	})
}
