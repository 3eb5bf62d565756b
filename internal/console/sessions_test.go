package console_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/console"
	"github.com/tundish-io/tundish/internal/session"
)

// A key logs in so often in a minute and no more, which costs Redis a bounded number of sessions and the audit one record.
func TestLoginsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin), keyOf("other", []string{"*"}, apikey.RoleRead))
	v := s.visitor()
	v.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	refused := 0
	for range 100 { // over the end of a minute, too
		page := v.login("root")
		if page.status == http.StatusTooManyRequests {
			refused++
			page.want(t, http.StatusTooManyRequests, "this key has logged in too often")
		}
	}
	if refused < 30 {
		t.Errorf("%d of 100 logins are refused", refused)
	}
	if page := v.login("other"); page.status != http.StatusSeeOther {
		t.Errorf("another key: %d", page.status)
	}
	keys := s.redis.Keys(t.Context(), "tundish:{fleet}:sessions:*").Val()
	for _, key := range keys {
		if n := s.redis.HLen(t.Context(), key).Val(); n > session.Most {
			t.Errorf("%s has %d sessions", key, n)
		}
	}
	if len(keys) != 2 {
		t.Errorf("%q", keys)
	}
	if page := v.get("/console/audit?logins=true"); strings.Count(page.text, "<td>login</td>") > 4 {
		t.Error(page.text)
	}
}

// Who may see and end sessions: an admin for all buckets all of them, any other key its own.
func TestSessionsOfOperators(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin), keyOf("reader", []string{"*"}, apikey.RoleRead), keyOf("some", []string{"letters"}, apikey.RoleAdmin))
	root, reader := s.visitor(), s.visitor()
	root.login("root").want(t, http.StatusOK)
	reader.login("reader").want(t, http.StatusOK)
	ids := regexp.MustCompile(`sessions/([0-9a-f]{16}-[0-9a-f]{16})/end`)
	of := func(v *visitor) (found []string) {
		for _, m := range ids.FindAllStringSubmatch(v.get("/console/sessions").text, -1) {
			found = append(found, m[1])
		}
		return found
	}
	all, own := of(root), of(reader)
	if len(all) != 2 || len(own) != 1 || own[0] != all[0] {
		t.Fatalf("%v, %v", all, own)
	}
	reader.post("/console/sessions/"+all[1]+"/end").want(t, http.StatusOK, "nothing to change")
	some := s.visitor()
	some.login("some")
	some.post("/console/sessions/"+all[1]+"/end").want(t, http.StatusOK, "nothing to change")
	root.post("/console/sessions/"+own[0]+"/end").want(t, http.StatusOK, "The session is ended.")
	if page := reader.get("/console/"); !strings.HasPrefix(page.at, "/console/login") {
		t.Error("the session goes on")
	}
	root.get("/console/audit").want(t, http.StatusOK, "endSession")
}

// A stream ends within five seconds after its login has, and as soon as its key has fewer rights.
func TestStreamsEndWithTheirLogin(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *site, v *visitor){
		"logout":       func(_ *site, v *visitor) { v.post("/console/logout") },
		"the key left": func(s *site, _ *visitor) { s.handler.SetKeys([]apikey.Key{keyOf("other", nil, apikey.RoleRead)}) },
		"fewer rights": func(s *site, _ *visitor) {
			s.handler.SetKeys([]apikey.Key{keyOf("root", []string{"letters"}, apikey.RoleRead)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiteWith(t, console.Config{}, keyOf("root", []string{"*"}, apikey.RoleRead))
			v := s.visitor()
			v.login("root").want(t, http.StatusOK)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/console/stream?bucket=letters", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := v.http.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			t.Cleanup(s.handler.Drain)
			began := time.Now()
			end(s, v)
			if _, err := io.ReadAll(response.Body); err != nil { // its end, without which the test does not end
				t.Error(err)
			}
			fmt.Fprintln(t.Output(), "it has ended after", time.Since(began))
		})
	}
}
