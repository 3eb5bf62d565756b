package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// A command line may hold any bytes, and what is sent is JSON.
func TestSendRefusesWhatIsNotUTF8(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"url", "header", "method", "flow", "group"} {
		runArgs(t.Context(), nil, "", "producer", "send", "webhooks", "1", "--server", "127.0.0.1:1", "--"+flag, "X-A=caf\xe9").
			want(t, 2, "--"+flag+": is not UTF-8")
	}
}

// Whole jobs are sent as payloads all the same, but somebody may have wanted import.
func TestSendWarnsOfWholeJobs(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"id":"x","bucket":"b","state":"queued"}`)
	}))
	t.Cleanup(server.Close)
	for _, tt := range []struct {
		args  []string
		stdin string
		want  string // "" no warning
	}{
		{args: []string{`{"payload":{"order":1}}`}, want: "PAYLOAD looks like a whole job"},
		{args: []string{`{"order":1,"payload":{}}`}}, // order is no field of a job
		{args: []string{`{"id":"a"}`}},               // neither what to send nor where
		{stdin: "{\"order\":1}\n{\"id\":\"a\",\"path\":\"customers/7\",\"method\":\"GET\"}\n", want: "line 2 looks like a whole job"},
		{stdin: "{\"payload\":1}\n{\"payload\":2}\n", want: "line 1 looks like a whole job"},
		{stdin: "1\nnot JSON\n[{\"payload\":1}]\n"},
	} {
		out := runArgs(t.Context(), nil, tt.stdin, append([]string{"producer", "send", "b", "--server", server.URL}, tt.args...)...)
		warnings := strings.Count(out.err, "looks like a whole job")
		if tt.want == "" && warnings != 0 || tt.want != "" && (warnings != 1 || !strings.Contains(out.err, tt.want)) {
			t.Errorf("send %q of %q says %q, want %q", tt.args, tt.stdin, out.err, tt.want)
		}
	}
}

// A bucket may name flows by a header of the request that enqueues: it goes out with the request, and not with the delivery. A refusal for want of it names
// the flag.
func TestSendNamesAFlowByAHeader(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("X-Tenant") == "acme" && !strings.Contains(string(body), "acme") && r.Header.Get("Content-Type") == "application/json" {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"id":"x","bucket":"b","state":"queued"}`)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"status":400,"code":"invalid","detail":"flow: is named by the header X-Tenant, which the request has not: send it"}`)
	}))
	t.Cleanup(server.Close)
	send := []string{"producer", "send", "b", "1", "--server", server.URL}
	runArgs(t.Context(), nil, "", append(send, "--request-header", "x-tenant: acme", "--request-header", "content-type: text/plain")...).want(t, 0, "queued")
	runArgs(t.Context(), nil, "", append(send, "--header", "X-Tenant: acme")...).want(t, 2, `--request-header "Name: value"`)
	runArgs(t.Context(), nil, "", append(send, "--request-header", "X-Tenant=acme")...).want(t, 2, `--request-header: "X-Tenant" is not in the form`)
}

// With --result the end of a job is waited for, and the exit code tells whether it is done.
func TestSendWaitsForTheResult(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		answer string
		code   int
		want   []string
	}{
		{200, `{"id":"a","bucket":"b","state":"done","status":201,"attempts":1,"headers":{"X-Id":["7"]},"body":"made"}`, 0, []string{"state     done", "header    X-Id: 7", "body      made"}},
		{200, `{"id":"a","bucket":"b","state":"dead","status":422,"attempts":1,"reason":"http_422","body":"no"}`, 1, []string{"state     dead", "http_422"}},
		{202, `{"id":"a","bucket":"b","state":"in_flight"}`, 1, []string{"has not ended within 7s", "dispatcher job show b"}},
		{429, `{"status":429,"code":"bucket-full","detail":"bucket \"b\" is full"}`, 3, []string{"is full"}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			must.Equal(t, r.Header.Get("Prefer"), "wait=7", "Prefer")
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.answer)
		}))
		t.Cleanup(server.Close)
		runArgs(t.Context(), nil, "", "producer", "send", "b", "1", "--server", server.URL, "--result", "7s").want(t, tt.code, tt.want...)
	}
	runArgs(t.Context(), nil, "1\n", "producer", "send", "b", "--server", "127.0.0.1:1", "--result", "7s").want(t, 2, "--result is for one job")
	runArgs(t.Context(), nil, "", "producer", "send", "b", "1", "--server", "127.0.0.1:1", "--result", "1.5s").want(t, 2, "whole seconds")
}
