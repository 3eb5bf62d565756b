package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
