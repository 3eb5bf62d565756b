package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// consolePrefix is where the proxy of the docs has the console.
const consolePrefix = "/ops/tundish/console/"

// The console behind nginx, as the docs have it: below a prefix, with users that the proxy names, and with its own login. Every link of every page stays in the
// console, forms are taken, and the live numbers come.
func TestConsoleBehindNginx(t *testing.T) {
	if _, err := exec.LookPath("nginx"); err != nil {
		harness.Skip(t, "this test needs nginx (apt-get install nginx)")
	}
	for name, settings := range map[string]string{
		"users of the proxy": "user_header = \"X-Forwarded-User\"\nuser_key = \"on-call\"\n",
		"login":              "",
	} {
		t.Run(name, func(t *testing.T) {
			b := consoleBehindNginx(t, settings)
			who, author := "alice@example.com, key on-call", "on-call (alice@example.com)"
			if settings == "" {
				b.login(t)
				who, author = "key on-call", "key on-call"
			}
			status, page := b.ask(t, http.MethodGet, b.url, nil)
			if status != http.StatusOK || !strings.Contains(page, who) {
				t.Fatalf("%d: %s", status, page)
			}
			for _, step := range []struct{ action, said string }{{"pause", "It is paused."}, {"resume", "It runs again."}} {
				status, page := b.ask(t, http.MethodPost, b.url+"buckets/webhooks/do/"+step.action, url.Values{"reason": {"a test"}})
				if status != http.StatusOK || !strings.Contains(page, step.said) {
					t.Errorf("%s: %d: %s", step.action, status, page)
				}
			}
			if _, page := b.ask(t, http.MethodGet, b.url+"audit", nil); !strings.Contains(page, "<td>"+author+"</td><td>127.0.0.1</td><td>pauseBucket</td>") {
				t.Errorf("the audit lacks a pause by %s: %s", author, page)
			}
			seen := b.crawl(t)
			for _, page := range []string{"", "buckets/webhooks", "buckets/webhooks/dead", "buckets/webhooks/jobs", "buckets/webhooks/timetable", "schedules", "pools", "limits", "fleet", "audit", "assets/console.css", "assets/console.js"} {
				if !slices.Contains(seen, consolePrefix+page) {
					t.Errorf("no link leads to %s: %q", page, seen)
				}
			}
			if status, page := b.ask(t, http.MethodGet, b.url+"jobs?id=", nil); status != http.StatusOK || !strings.Contains(page, "Find a job") {
				t.Errorf("the search for jobs: %d: %s", status, page)
			}
			t.Logf("%d addresses", len(seen))
			b.wantSecond(t)
		})
	}
}

// browser asks through the proxy, as one whom the proxy knows.
type browser struct {
	http        http.Client
	origin, url string
	secret      string // of the key
}

// consoleBehindNginx runs a dispatcher, and nginx with the lines of the docs.
func consoleBehindNginx(t *testing.T, settings string) *browser {
	t.Helper()
	ops, gateway, sso := redistest.FreeAddr(t), redistest.FreeAddr(t), redistest.FreeAddr(t)
	out, err := exec.Command(filepath.Join(harness.Programs, "producer"), "key", "new", "on-call", "--role", "read", "--role", "operate", "--bucket", "*", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var key struct{ Secret, TOML string }
	if err := json.Unmarshal(out, &key); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dispatcher.toml")
	text := fmt.Sprintf(`
[redis]
url = %q
[dispatcher]
listen = %q
[console]
name = "production"
colour = "red"
trusted_proxies = ["127.0.0.1"]
public_url = "http://%s/ops/tundish"
%s
%s
[[pools]]
name = "vendor"
rate = "100/s"
[[buckets]]
name = "webhooks"
rate = "1/s"
pool = "vendor"
webhook.url = "https://example.com/"
[[schedules]]
name = "nightly"
cron = "0 2 * * *"
bucket = "webhooks"
payload = "{}"
`, redistest.Start(t).URL(), ops, gateway, settings, key.TOML)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	harness.Run(t, "http://"+ops, "dispatcher", "run", "--config", path)
	runNginx(t, fmt.Sprintf(`daemon off;
pid nginx.pid;
error_log stderr warn;
events {}
http {
  access_log off;
  server {
    listen %s;
    location = /sso { internal; proxy_pass http://%s/; }
%s
  }
  server { # a service that knows the users by a cookie
    listen %[2]s;
    location = /ready { return 200; }
    location / {
      if ($cookie_sso = "") { return 401; }
      add_header X-Auth-Request-Email $cookie_sso@example.com;
      return 200;
    }
  }
}
`, gateway, sso, strings.ReplaceAll(nginxOfDocs(t), "10.0.3.8:8081", ops)), "http://"+sso+"/ready")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{http: http.Client{Jar: jar}, origin: "http://" + gateway, url: "http://" + gateway + consolePrefix, secret: key.Secret}
	t.Cleanup(b.http.CloseIdleConnections)
	if status, _ := b.ask(t, http.MethodGet, b.url, nil); status != http.StatusUnauthorized {
		t.Errorf("nobody knows the visitor, and it gets %d", status)
	}
	at, err := url.Parse(b.origin)
	if err != nil {
		t.Fatal(err)
	}
	jar.SetCookies(at, []*http.Cookie{{Name: "sso", Value: "alice", Path: "/"}})
	return b
}

// nginxOfDocs are the lines for nginx that the docs have.
func nginxOfDocs(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/console.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```nginx\n")
	lines, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(lines, "10.0.3.8:8081") {
		t.Fatal("docs/console.md has no lines for nginx")
	}
	return lines
}

// open asks as a browser does. It claims another user and another address besides, which the proxy has to replace.
func (b *browser) open(t *testing.T, method, address string, form url.Values) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Forwarded-User", "mallory@example.com")
	request.Header.Set("X-Forwarded-For", "203.0.113.9")
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Origin", b.origin)
	}
	response, err := b.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func (b *browser) ask(t *testing.T, method, address string, form url.Values) (status int, page string) {
	t.Helper()
	response := b.open(t, method, address, form)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// login gives the key to the form that the first page leads to.
func (b *browser) login(t *testing.T) {
	t.Helper()
	if status, page := b.ask(t, http.MethodGet, b.url, nil); status != http.StatusOK || !strings.Contains(page, `name="key"`) {
		t.Fatalf("no login is asked for: %d: %s", status, page)
	}
	if status, page := b.ask(t, http.MethodPost, b.url+"login", url.Values{"key": {b.secret}}); status != http.StatusOK || !strings.Contains(page, "Log out") {
		t.Fatalf("the login: %d: %s", status, page)
	}
}

// crawl follows every link, and returns the paths that it has seen. Forms are not sent, and have to stay in the console, too.
func (b *browser) crawl(t *testing.T) (paths []string) {
	t.Helper()
	const most = 500
	known, next := map[string]bool{b.url: true}, []string{b.url}
	for ; len(next) > 0 && len(known) < most; next = next[1:] {
		status, page := b.ask(t, http.MethodGet, next[0], nil)
		if status != http.StatusOK {
			t.Errorf("%s: %d", next[0], status)
			continue
		}
		at, err := url.Parse(next[0])
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, at.Path)
		if strings.Contains(at.Path, "/assets/") {
			continue
		}
		document, err := html.Parse(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		for node := range document.Descendants() {
			for _, a := range node.Attr {
				if !slices.Contains([]string{"href", "src", "action", "formaction"}, a.Key) {
					continue
				}
				to, err := at.Parse(a.Val)
				if err != nil || !strings.HasPrefix(to.String(), b.url) {
					t.Errorf("%s has the link %q, which leaves the console", at, a.Val)
					continue
				}
				to.Fragment = ""
				endless := at.Query().Has("from") && to.Query().Has("from") // a calendar leads to the next one
				if follows := a.Key == "href" || a.Key == "src"; follows && !endless && !known[to.String()] {
					known[to.String()] = true
					next = append(next, to.String())
				}
			}
		}
	}
	if len(next) > 0 {
		t.Errorf("there are more than %d addresses", most)
	}
	return paths
}

// wantSecond waits for a second of the live numbers.
func (b *browser) wantSecond(t *testing.T) {
	t.Helper()
	response := b.open(t, http.MethodGet, b.url+"stream?bucket=webhooks", nil)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if lines.Text() == "event: second" {
			return
		}
	}
	t.Errorf("the stream ends without a second: %d, %v", response.StatusCode, lines.Err())
}
