package test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestNginx: the example for nginx, as it is shipped but for its ports, in
// front of an API. Refusals reach the client as 429 with the time to wait, and
// that is true; clients count apart; nobody chooses what he is counted as.
func TestNginx(t *testing.T) {
	if _, err := exec.LookPath("nginx"); err != nil {
		harness.Skip(t, "this test needs nginx (apt-get install nginx)")
	}
	server := redistest.Start(t)
	url := harness.Producers(t, server.URL(), 1,
		"trusted_proxies = [\"127.0.0.1\"]\n"+harness.LimitTable("per-caller", "fixed_window", "3/2s", `per = ["caller"]`))[0]
	gateway := startNginx(t, "../examples/gateway/nginx.conf", map[string]string{
		"127.0.0.1:8080": strings.TrimPrefix(url, "http://"), "127.0.0.1:8088": "", "127.0.0.1:8089": "",
	})["127.0.0.1:8088"]
	asker := harness.NewAsker(t, 1)

	// Up to four in a row: an edge of the window may lie between them.
	var refused http.Header
	passed := 0
	harness.Await(t, 10*time.Second, "a refusal", func() bool {
		status, header := asker.Ask(t.Context(), "http://"+gateway+"/orders?key=other&cost=-5")
		switch status {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests:
			refused = header
		default:
			t.Fatalf("status %d", status)
		}
		if status == http.StatusOK && !strings.Contains(header.Get("RateLimit-Policy"), `"per-caller";q=3;w=2`) {
			t.Fatalf("headers of a request that passes: %v", header)
		}
		return refused != nil
	})
	wait, err := strconv.Atoi(refused.Get("Retry-After"))
	if err != nil || wait < 1 || wait > 2 || !strings.Contains(refused.Get("RateLimit"), `"per-caller";r=0;t=`) ||
		!strings.HasPrefix(refused.Get("Content-Type"), "application/problem+json") {
		t.Fatalf("headers of a refusal: %v", refused)
	}
	t.Logf("%d passed, then 429 with Retry-After %d, RateLimit %s, RateLimit-Policy %s",
		passed, wait, refused.Get("RateLimit"), refused.Get("RateLimit-Policy"))
	again := time.After(time.Duration(wait) * time.Second)
	<-again
	if status, _ := asker.Ask(t.Context(), "http://"+gateway+"/"); status != http.StatusOK {
		t.Errorf("after Retry-After: %d", status)
	}

	server.Stop()
	status, header := asker.Ask(t.Context(), "http://"+gateway+"/")
	server.Cont()
	if status != http.StatusServiceUnavailable || header.Get("Retry-After") != "1" {
		t.Errorf("with Redis away: %d, %v", status, header)
	}
}

// TestEnvoy sends what Envoy's ext_authz sends with the example for it: the
// method, the Host and the path of the client's request, the path appended to
// that of the check, and the headers of the example's headers_to_add. Envoy
// itself is not in Debian's packages.
func TestEnvoy(t *testing.T) {
	const prefix = "/v1/limits/per-caller/check"
	example, err := os.ReadFile("../examples/gateway/envoy.yaml")
	if err != nil || !strings.Contains(string(example), "path_prefix: "+prefix+"\n") {
		t.Fatalf("the example has another path_prefix (%v)", err)
	}
	out, err := exec.Command(filepath.Join(harness.Programs, "producer"), "key", "new", "envoy", "--role", "check", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var key struct{ Secret, TOML string }
	if err := json.Unmarshal(out, &key); err != nil {
		t.Fatal(err)
	}
	url := harness.Producers(t, redistest.Start(t).URL(), 1,
		"trusted_proxies = [\"127.0.0.1\"]\n"+key.TOML+harness.LimitTable("per-caller", "fixed_window", "3/744h", `per = ["caller"]`))[0]

	ask := func(client, query string) (int, http.Header) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url+prefix+"/orders/7"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "api.example.com"
		request.Header = http.Header{
			"Authorization": {"Bearer " + key.Secret}, "X-Forwarded-For": {"198.51.100.9, " + client},
			"X-Tundish-Key": {""}, "X-Tundish-Cost": {""}, "X-Tundish-Tier": {""},
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode, response.Header
	}
	for i := range 5 {
		status, header := ask("203.0.113.7", "?key=somebody-else&cost=1000&deny=403")
		if want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[i < 3]; status != want {
			t.Errorf("request %d: %d, want %d", i, status, want)
		} else if i >= 3 && header.Get("Retry-After") == "" {
			t.Errorf("request %d: %v", i, header)
		}
	}
	if status, _ := ask("203.0.113.8", ""); status != http.StatusOK {
		t.Errorf("another client: %d", status)
	}
}

// startNginx runs nginx with a shipped configuration in which addresses are
// replaced, those without a replacement by free ones, and returns all of them.
func startNginx(t *testing.T, conf string, addresses map[string]string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	own := string(text)
	for from, to := range addresses {
		if to == "" {
			to = redistest.FreeAddr(t)
			addresses[from] = to
		}
		if !strings.Contains(own, from+";") {
			t.Fatalf("%s has no %s", conf, from)
		}
		own = strings.ReplaceAll(own, from+";", to+";")
	}
	runNginx(t, own, "http://"+addresses["127.0.0.1:8089"]+"/")
	return addresses
}

// runNginx runs nginx with a configuration, and waits until it answers at ready with 200.
func runNginx(t *testing.T, conf, ready string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	output := &harness.LockedBuffer{}
	nginx := exec.Command("nginx", "-p", dir, "-e", "stderr", "-c", path)
	nginx.Stdout, nginx.Stderr = output, output
	if err := nginx.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = nginx.Process.Signal(os.Interrupt)
		_ = nginx.Wait()
		if t.Failed() {
			t.Logf("nginx:\n%s", output)
		}
	})
	probe := harness.NewAsker(t, 1)
	harness.Await(t, 10*time.Second, "nginx is up", func() bool {
		status, _ := probe.Ask(t.Context(), ready)
		return status == http.StatusOK
	})
}
