package httpworker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers"
)

// volume is a folder of secrets as Kubernetes mounts one: each file is a link through ..data to the folder of a version.
type volume struct {
	t       *testing.T
	dir     string
	version int
}

// stampOfFiles is when all versions were written, as far as their files tell.
var stampOfFiles = time.Unix(1_700_000_000, 0)

// put turns all files at once.
func (v *volume) put(files map[string]string) {
	v.t.Helper()
	v.version++
	version := "..v" + strconv.Itoa(v.version)
	errs := []error{os.Mkdir(filepath.Join(v.dir, version), 0o700)}
	for name, text := range files {
		path := filepath.Join(v.dir, version, name)
		errs = append(errs, os.WriteFile(path, []byte(text+"\n"), 0o600), os.Chtimes(path, stampOfFiles, stampOfFiles))
		if v.version == 1 {
			errs = append(errs, os.Symlink(filepath.Join("..data", name), v.file(name)))
		}
	}
	errs = append(errs, os.Symlink(version, filepath.Join(v.dir, "..next")), os.Rename(filepath.Join(v.dir, "..next"), filepath.Join(v.dir, "..data")))
	for _, err := range errs {
		must.OK(v.t, err)
	}
}

func (v *volume) file(name string) string { return filepath.Join(v.dir, name) }

// Secrets that are turned in a volume, and whose old values are refused at once: no request after that has an old one, and no job is dead.
func TestSecretsTurn(t *testing.T) {
	t.Parallel()
	for kind, set := range map[string]func(c *Config, file string){
		"bearer": func(c *Config, file string) { c.Auth.Bearer, c.Files.Bearer = "s1", file },
		"basic":  func(c *Config, file string) { c.Auth.Basic, c.Files.BasicPassword = Basic{"u", "s1"}, file },
		"header": func(c *Config, file string) {
			c.Auth.Header, c.Files.HeaderValue = Header{"X-API-Key", "s1"}, file
		},
		"one of the headers": func(c *Config, file string) {
			c.Headers, c.Files.Headers = map[string]string{"X-Key": "s1", "X-Other": "o"}, map[string]string{"X-Key": file}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			v := &volume{t: t, dir: t.TempDir()}
			v.put(map[string]string{"secret": "s1"})
			a := newAPI(t)
			config := configOf(a)
			set(&config, v.file("secret"))
			var valid atomic.Value
			valid.Store("s1")
			old := 0
			a.answer = func(r *http.Request) int {
				if basic := r.Header.Get("Authorization"); basic == "" && r.Header.Get("X-Key")+r.Header.Get("X-API-Key") == valid.Load() || basic == "Bearer "+valid.Load().(string) {
					return http.StatusOK
				}
				if _, password, ok := r.BasicAuth(); ok && password == valid.Load() {
					return http.StatusOK
				}
				old++
				return http.StatusUnauthorized
			}
			w := workerOf(t, config)
			for _, next := range []string{"s2", "s3-longer", "\ufeffs4-long"} {
				if outcome := deliver(t, w, nil); outcome.Result != shaper.ResultDone {
					t.Fatalf("before %s: %+v", next, outcome)
				}
				v.put(map[string]string{"secret": next})
				valid.Store(strings.TrimPrefix(next, "\ufeff"))
				for i := range 6 {
					if i == 3 {
						v.put(map[string]string{"secret": "is no\nheader"}) // the last one stays
					}
					if outcome := deliver(t, w, nil); outcome.Result != shaper.ResultDone {
						t.Errorf("after %s: %+v", next, outcome)
					}
				}
			}
			if old > 0 {
				t.Errorf("%d requests had an old secret, want none", old)
			}
			valid.Store("not known here") // a 401 that no file explains yet
			if outcome := deliver(t, w, nil); outcome.Result != shaper.ResultRetry || outcome.Reason != "http_401" {
				t.Errorf("401 to the secret in the file: %+v", outcome)
			}
			for i := range 20 {
				outcome := deliver(t, w, func(a *shaper.Attempt) { a.ID = fmt.Sprint("other-", i) })
				if outcome.Result != shaper.ResultHeld || outcome.Reason != workers.ReasonCredentials || outcome.RetryAfter <= 0 || outcome.RetryAfter > refusedPause {
					t.Errorf("the same for other jobs: %+v", outcome)
				}
			}
			v.put(map[string]string{"secret": "not known here"})
			if outcome := deliver(t, w, nil); outcome.Result != shaper.ResultDone {
				t.Errorf("after the file has changed: %+v", outcome)
			}
		})
	}
}

// A secret that turns while requests are under way, in place and within one tick of the clock of files: each 401 waits for the new secret and spends no attempt.
func TestSecretTurnsUnderway(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	stamp := time.Now().Add(-time.Hour)
	write := func(text string) {
		t.Helper()
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		if err := os.Chtimes(file, stamp, stamp); err != nil { // so that nothing but the text differs
			t.Fatal(err)
		}
	}
	write("s1")
	a := newAPI(t)
	config := configOf(a)
	config.Auth.Bearer, config.Files.Bearer = "s1", file
	w := workerOf(t, config)
	turned := false
	a.answer = func(r *http.Request) int {
		if r.Header.Get("Authorization") == "Bearer s2" {
			return http.StatusOK
		}
		if !turned { // while the request is under way
			turned = true
			write("s2")
		}
		return http.StatusUnauthorized
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			outcome := deliver(t, w, nil)
			if outcome.Result == shaper.ResultHeld && outcome.Reason == workers.ReasonCredentials && outcome.RetryAfter == 0 && outcome.Signal == shaper.SignalNone {
				outcome = deliver(t, w, nil)
			}
			must.Equal(t, outcome.Result, shaper.ResultDone, "%+v", outcome)
		})
	}
	all.Wait()
}

// tokenRequests notes the requests for tokens of a strict server, which takes one style and wants a parameter.
type tokenRequests struct {
	*httptest.Server
	mu     sync.Mutex
	got    []url.Values // with "basic" for the credentials in the header
	status int
}

func newTokenRequests(t *testing.T) *tokenRequests {
	t.Helper()
	s := &tokenRequests{status: http.StatusOK}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		s.mu.Lock()
		defer s.mu.Unlock()
		if user, password, ok := r.BasicAuth(); ok {
			r.PostForm.Set("basic", user+":"+password)
		}
		s.got = append(s.got, r.PostForm)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(s.status)
		if s.status == http.StatusOK {
			_, _ = w.Write([]byte(`{"access_token":"t","token_type":"Bearer","expires_in":3600}`))
		} else {
			_, _ = w.Write([]byte(`{"error":"invalid_client"}`))
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *tokenRequests) requests() []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// The first request for a token is right, and it is the only one, for many workers at once.
func TestOAuthStyleAndParams(t *testing.T) {
	t.Parallel()
	for style, want := range map[OAuth2Style]url.Values{
		"":          {"basic": {"id:secret"}, "grant_type": {"client_credentials"}, "scope": {"a b"}, "audience": {"https://api"}},
		OAuth2Basic: {"basic": {"id:secret"}, "grant_type": {"client_credentials"}, "scope": {"a b"}, "audience": {"https://api"}},
		OAuth2Body:  {"client_id": {"id"}, "client_secret": {"secret"}, "grant_type": {"client_credentials"}, "scope": {"a b"}, "audience": {"https://api"}},
	} {
		a, s := newAPI(t), newTokenRequests(t)
		config := configOf(a)
		config.Auth.OAuth2 = OAuth2{TokenURL: s.URL, ClientID: "id", ClientSecret: "secret", Scopes: []string{"a", "b"}, Params: map[string]string{"audience": "https://api"}, Style: style}
		w := workerOf(t, config)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { deliver(t, w, nil) })
		}
		all.Wait()
		if got := s.requests(); len(got) != 1 || got[0].Encode() != want.Encode() {
			t.Errorf("style %q: %v, want one request %v", style, got, want)
		}
		refused := newTokenRequests(t)
		refused.status, config.Auth.OAuth2.TokenURL = http.StatusUnauthorized, refused.URL
		deliver(t, workerOf(t, config), nil)
		if got := refused.requests(); len(got) != 1 {
			t.Errorf("style %q: a server that refuses it got %v, want one request: another style may lock the client", style, got)
		}
	}
}

// A server that gives no token costs no job an attempt: its bucket waits for the next try. Each try is one request.
func TestNoTokenHolds(t *testing.T) {
	t.Parallel()
	a, s := newAPI(t), newTokenRequests(t)
	s.status = http.StatusUnauthorized
	secret := filepath.Join(t.TempDir(), "secret")
	must.OK(t, os.WriteFile(secret, []byte("old"), 0o600))
	config := configOf(a)
	config.Auth.OAuth2 = OAuth2{TokenURL: s.URL, ClientID: "id", ClientSecret: "old"}
	config.Files.ClientSecret = secret
	w := workerOf(t, config)
	for range 50 {
		outcome := deliver(t, w, nil)
		if outcome.Result != shaper.ResultHeld || outcome.Reason != workers.ReasonToken || outcome.RetryAfter > tokenPause || outcome.Signal != shaper.SignalNone {
			t.Fatalf("%+v", outcome)
		}
	}
	if got := s.requests(); len(got) != 1 || a.last().method != "" {
		t.Errorf("%d requests for a token, want 1", len(got))
	}
	// The secret is put right: the next try has it.
	must.OK(t, os.WriteFile(secret, []byte("new secret"), 0o600))
	s.mu.Lock()
	s.status = http.StatusOK
	s.mu.Unlock()
	w.tokens.mu.Lock()
	w.tokens.failedAt = w.tokens.failedAt.Add(-tokenPause)
	w.tokens.mu.Unlock()
	if outcome := deliver(t, w, nil); outcome.Result != shaper.ResultDone && outcome.Reason != workers.ReasonLate {
		t.Errorf("%+v", outcome)
	}
	if got := s.requests(); len(got) != 2 || got[1].Get("basic") != "id:new secret" && got[1].Get("basic") != "id:new+secret" {
		t.Errorf("%v", got)
	}
}

func TestPauseGrows(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 7: time.Minute, 1000: time.Minute} {
		must.Equal(t, (&tokens{failures: failures}).pause(), want, "after %d failures", failures)
	}
}
