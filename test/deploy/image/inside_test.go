package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// running makes a command of a program of the image.
type running func(env []string, program string, args ...string) *exec.Cmd

// configuration writes one whose bucket sends to a receiver, beside the programs, and returns its path for them.
func configuration(t *testing.T, root, receiver string) string {
	t.Helper()
	text := fmt.Sprintf(`redis.url = "embedded"
redis.embedded_listen = %q
producer.listen = %q
dispatcher.listen = %q
[[buckets]]
name = "webhooks"
rate = "50/s"
[buckets.webhook]
url = %q
allow_networks = ["127.0.0.0/8"]
[buckets.retry]
max_attempts = 1
[[schedules]]
name = "morning"
bucket = "webhooks"
cron = "0 8 * * *"
payload = "{}"
timezone = "Europe/Paris"
`, freeAddress(t), freeAddress(t), freeAddress(t), receiver)
	if err := os.WriteFile(filepath.Join(root, "tundish.toml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return "/tundish.toml"
}

// starts runs the dispatcher until it is healthy. What it returns stops it, and tells what it has said.
func starts(t *testing.T, inside running, env []string, args ...string) (stop func() string) {
	t.Helper()
	program := inside(env, "dispatcher", append([]string{"run"}, args...)...)
	var said bytes.Buffer
	program.Stdout, program.Stderr = &said, &said
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()
	for { // the command bounds how long it waits for an answer
		out, err := inside(env, "dispatcher", append([]string{"health"}, args...)...).CombinedOutput()
		if err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended before it was healthy: %v\n%s", err, said.String())
		case <-t.Context().Done():
			t.Fatalf("it never is healthy: %s", out)
		default:
		}
	}
	return func() string {
		t.Helper()
		if err := program.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the end: %v\n%s", err, said.String())
		}
		if out, err := inside(env, "dispatcher", append([]string{"health"}, args...)...).CombinedOutput(); err == nil || !strings.Contains(string(out), "not ready") {
			t.Errorf("health of nothing: %v %s", err, out)
		}
		return said.String()
	}
}

// sends starts the dispatcher with a configuration, sends one job, and returns what the programs say of it. Where a receiver is told, it gets the job.
func sends(t *testing.T, inside running, env []string, config string, arrived <-chan struct{}) string {
	t.Helper()
	stop := starts(t, inside, env, "--config", config)
	out, err := inside(env, "producer", "send", "webhooks", `{"n":1}`, "--wait", "--result", "60s", "--config", config).CombinedOutput()
	if arrived != nil {
		if err != nil {
			t.Errorf("producer send: %v\n%s", err, out)
		}
		select {
		case <-arrived:
		default:
			t.Error("the receiver saw nothing")
		}
	}
	return stop() + string(out)
}

// receiver answers 200, and tells once that somebody asked.
func receiver(start func(http.Handler) *httptest.Server) (*httptest.Server, <-chan struct{}) {
	arrived := make(chan struct{}, 1)
	return start(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case arrived <- struct{}{}:
		default:
		}
	})), arrived
}

// trusts has a program of the image call a receiver whose certificate an authority of our own has signed: with that in SSL_CERT_FILE it is trusted, and with the roots
// that are inside it is not.
func trusts(t *testing.T, root string, inside running) {
	t.Helper()
	server, arrived := receiver(httptest.NewTLSServer)
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(root, "authority.pem"), authority, 0o644); err != nil {
		t.Fatal(err)
	}
	config := configuration(t, root, server.URL)
	if said := sends(t, inside, nil, config, nil); !strings.Contains(said, "unknown authority") {
		t.Errorf("a receiver of a stranger is trusted, or no roots were looked at: %s", said)
	}
	sends(t, inside, []string{"SSL_CERT_FILE=/authority.pem"}, config, arrived)
}

// hasRoots tells that both programs have the roots of TLS inside: a test of the program verifies a recorded chain by them.
func hasRoots(t *testing.T, root string) {
	t.Helper()
	for _, program := range []string{"dispatcher", "producer"} {
		info, err := buildinfo.ReadFile(filepath.Join(root, "usr/local/bin", program))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "golang.org/x/crypto/x509roots/fallback" }) {
			t.Errorf("%s has no roots of TLS inside", program)
		}
	}
}
