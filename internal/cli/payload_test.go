package cli_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// oddPayloads are JSON that an encoder would write in another way: odd spacing, characters that Go
// escapes for HTML, numbers beyond a double, a name given twice, escapes that need not be.
var oddPayloads = []string{
	"{ \"a\" : \"<&>\" ,\t\"b\":[1 , 2],\"n\": 123456789012345678901234567890.10, \"e\":1E400}",
	"{\"z\":1,\"a\":2,\"z\":3, \"s\":\"\\u0041\\/\u2028é😀\"}",
	"  [ ] ",
	"1.50E+2",
}

// A payload reaches the receiver byte for byte, however it comes in: by the command line as an argument, as a
// line of stdin, from a file, and by HTTP alone and in a batch. Only the blanks around the value go.
func TestPayloadsByteForByte(t *testing.T) {
	t.Parallel()
	p := newPlan(t, redistest.Start(t).URL(), `rate = "1000/s"`)
	to := receive(t)
	dispatcher, producer := start(t, p.env, "dispatcher run"), start(t, p.env, "producer serve")
	dispatcher.ready(t, p.ops)
	producer.ready(t, p.api)

	bodies := map[string]string{"/jobs": typeJSON, "/jobs/batch": typeNDJSON}
	sent := 0
	for _, payload := range oddPayloads {
		runArgs(t.Context(), p.env, "", "producer", "send", "webhooks", payload, "--url", to.URL).want(t, 0)
		for path, kind := range bodies {
			post(t, "http://"+p.api+"/v1/buckets/webhooks"+path, kind, `{ "url":"`+to.URL+`", "payload" : `+payload+"}\n")
		}
		post(t, "http://"+p.api+"/v1/buckets/webhooks/jobs/batch", typeJSON, `[{ "url":"`+to.URL+`", "payload" : `+payload+`} ]`)
		sent += 4
	}
	lines := strings.Join(oddPayloads, "\n") + "\n"
	command(t.Context(), p.env, lines, "producer send webhooks --url "+to.URL).want(t, 0, "4 jobs in")
	path := filepath.Join(t.TempDir(), "payloads.ndjson")
	must.OK(t, os.WriteFile(path, []byte(lines), 0o600))
	file := must.Get(os.Open(path))(t)
	defer file.Close()
	var said bytes.Buffer
	args := []string{"send", "webhooks", "-", "--url", to.URL}
	must.Be(t, program("producer")(t.Context(), args, p.env, file, io.Discard, &said), 0, "exit code: %s", said.String())
	sent += 2 * len(oddPayloads)
	eventually(t, "all are delivered", func() bool { return to.count() == sent })

	var want []string
	for _, payload := range oddPayloads {
		want = append(want, slices.Repeat([]string{strings.TrimSpace(payload)}, sent/len(oddPayloads))...)
	}
	got := slices.Sorted(slices.Values(to.bodies))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("delivered\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	must.Equal(t, [2]int{producer.end(), dispatcher.end()}, [2]int{}, "the exit codes are")
}

const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
)

// post sends a body that has to be taken.
func post(t *testing.T, url, kind, body string) {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", kind)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	must.OK(t, err)
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode >= 300 {
		t.Fatalf("%s %s answers %d: %s", url, body, resp.StatusCode, text)
	}
}
