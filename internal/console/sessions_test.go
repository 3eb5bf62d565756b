package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
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
	must.Equal(t, v.login("other").status, http.StatusSeeOther, "another key")
	keys := s.redis.Keys(t.Context(), "tundish:{fleet}:sessions:*").Val()
	for _, key := range keys {
		if n := s.redis.HLen(t.Context(), key).Val(); n > session.Most {
			t.Errorf("%s has %d sessions", key, n)
		}
	}
	must.Equal(t, len(keys), 2, "%q", keys)
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
