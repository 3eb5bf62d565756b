package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

// secretFile is a file with a secret, and the newline that editors put behind it.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// One form everywhere, "Name: value", and the value may stand where other users cannot read it.
func TestSendHeaders(t *testing.T) {
	t.Parallel()
	var sent struct{ Headers map[string][]string }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"id":"x","bucket":"b","state":"queued"}`)
	}))
	t.Cleanup(server.Close)
	runArgs(t.Context(), []string{"TOKEN=Bearer hunter2"}, "from stdin\n", "producer", "send", "b", "1", "--server", server.URL,
		"--header", "X-Plain: a=b: c", "--header", "Authorization: env:TOKEN", "--header", "X-File:file:"+secretFile(t, "of a file"), "--header", "X-In: -", "--header", "x-plain: second").
		want(t, 0)
	want := map[string][]string{"X-Plain": {"a=b: c", "second"}, "Authorization": {"Bearer hunter2"}, "X-File": {"of a file"}, "X-In": {"from stdin"}}
	for name, value := range want {
		if !slices.Equal(sent.Headers[name], value) {
			t.Errorf("header %s is %q, want %q", name, sent.Headers[name], value)
		}
	}
}

func TestFlowSecretsOffTheCommandLine(t *testing.T) {
	t.Parallel()
	s := partedSite(t, false, "acme")
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	s.env = append(s.env, "TOKEN=Bearer hunter2")
	out := runArgs(t.Context(), s.env, secret+"\n", "dispatcher", "flow", "set", "tenants", "acme", "--url", "https://a.example/",
		"--header", "Authorization: env:TOKEN", "--secret", "-", "--secret", "file:"+secretFile(t, secret))
	out.want(t, 0, "headers    Authorization", "secrets    2")
	info, err := s.operator.As("test").Bucket("tenants").Flow("acme").Info(t.Context())
	if err != nil || info.Own.Headers["Authorization"] != "Bearer hunter2" || len(info.Own.Secrets) != 2 || info.Own.Secrets[0] != secret {
		t.Errorf("the flow has %+v, %v", info.Own, err)
	}
	if strings.Contains(out.out+out.err, "hunter2") || strings.Contains(out.out+out.err, "MfKQ") {
		t.Errorf("a secret is printed:\n%s%s", out.out, out.err)
	}
}

// The headers of a job are shown, but no credentials.
func TestJobShowRedactsCredentials(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	headers := map[string][]string{"X-Tenant": {"seven", "eight"}, "Idempotency-Key": {"order-17"}}
	for _, name := range []string{"Authorization", "proxy-authorization", "Cookie", "X-Api-Key", "X-Gitlab-Token", "X-Hub-Signature"} {
		headers[name] = []string{"hunter2"}
	}
	receipts, err := s.client.Enqueue(t.Context(), shaper.Job{Bucket: "webhooks", ID: "a", Payload: []byte(`1`), URL: "https://example.com/", Headers: headers})
	if err != nil || receipts[0].Refusal != nil {
		t.Fatal(receipts, err)
	}
	for _, words := range []string{"dispatcher job show webhooks a", "dispatcher job show webhooks a --json"} {
		out := s.run(t, words)
		out.want(t, 0, "Authorization", "Cookie", "X-Api-Key", "***", "seven", "eight", "order-17")
		if strings.Contains(out.out+out.err, "hunter2") {
			t.Errorf("%s prints a credential:\n%s", words, out.out)
		}
	}
	s.deliver(t, 1, shaper.Dead("http_410", "Gone"))
	if out := s.run(t, "dispatcher dead show webhooks a --json"); !strings.Contains(strings.Join(strings.Fields(out.out), " "), `"Authorization": [ "***" ]`) || strings.Contains(out.out, "hunter2") {
		t.Errorf("dead show prints a credential:\n%s", out.out)
	}
}
