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

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// secretFile is a file with a secret, and the newline that editors put behind it.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	must.OK(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
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
	out.want(t, 0, "headers    Authorization", "secrets    2: 1 96ad2ccd8146, 2 96ad2ccd8146")
	info, err := s.operator.As("test").Bucket("tenants").Flow("acme").Info(t.Context())
	if err != nil || info.Own.Headers["Authorization"] != "Bearer hunter2" || len(info.Own.Secrets) != 2 || info.Own.Secrets[0] != secret {
		t.Errorf("the flow has %+v, %v", info.Own, err)
	}
	if strings.Contains(out.out+out.err, "hunter2") || strings.Contains(out.out+out.err, "MfKQ") {
		t.Errorf("a secret is printed:\n%s%s", out.out, out.err)
	}
}

// Secrets are changed one by one, by where they are or by their numbers. Nobody needs to know the others.
func TestAddAndRemoveSecrets(t *testing.T) {
	t.Parallel()
	s := partedSite(t, false, "acme")
	const old, fresh = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	s.env = append(s.env, "OLD="+old, "NEW="+fresh)
	const set = "dispatcher flow set tenants acme "
	has := func(want ...string) {
		t.Helper()
		info, err := s.operator.As("test").Bucket("tenants").Flow("acme").Info(t.Context())
		if err != nil || !slices.Equal(info.Own.Secrets, want) {
			t.Errorf("the flow has %q, %v, want %q", info.Own.Secrets, err, want)
		}
	}
	s.run(t, set+"--secret env:OLD").want(t, 0, "secrets    1: 1 96ad2ccd8146")
	for range 2 {
		s.run(t, set+"--add-secret env:NEW --weight 2").want(t, 0, "secrets    2: 1 2dd745ff9912, 2 96ad2ccd8146", "weight     2")
		has(fresh, old)
	}
	s.run(t, set+"--remove-secret 3").want(t, 2, "--remove-secret: 3: flow acme has 2: 1 2dd745ff9912, 2 96ad2ccd8146 of its own")
	s.run(t, set+"--remove-secret old").want(t, 2, "--remove-secret: \"old\": want the number of a secret or its fingerprint")
	s.run(t, set+"--secret env:NEW --remove-secret 2").want(t, 2, "--secret replaces all secrets")
	s.run(t, set+"--add-secret "+fresh).want(t, 2, "--add-secret: want env:VARIABLE")
	has(fresh, old)
	s.run(t, set+"--remove-secret 2").want(t, 0, "secrets    1: 1 2dd745ff9912")
	for range 2 { // by a fingerprint it may be repeated
		s.run(t, set+"--remove-secret 96ad2ccd8146").want(t, 0, "secrets    1: 1 2dd745ff9912")
	}
	has(fresh)
	s.run(t, set+"--remove-secret 1").want(t, 0, "waiting    1")
	has()
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
