package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/console"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// class is what becomes of a request.
type class string

const (
	served  class = "served"  // a page, or an action and back to a page
	login   class = "login"   // a page asks for a key first
	refused class = "refused" // 401 of what is no page, and 403
	unknown class = "unknown" // 404: there is no such thing for this key
)

// classOf is the class of an answer. Anything else than a class is its status.
func classOf(status int, location string) class {
	switch {
	case status == http.StatusSeeOther && strings.Contains(location, "login"):
		return login
	case status == http.StatusOK, status == http.StatusSeeOther, status == http.StatusConflict: // it may, and a drain goes on already
		return served
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return refused
	case status == http.StatusNotFound:
		return unknown
	}
	return class(fmt.Sprint(status))
}

// trial is a request for a route, and which keys it is served. Where the server does not know the visitor, a page asks for the login, and all else is refused.
type trial struct {
	pattern, path string
	form          url.Values
	served        []string // to these keys
	open          bool     // to everybody
	secret        bool     // a key of another bucket is not told whether there is such a thing
	ofCallers     bool     // a key that enqueues has it of its own jobs alone, and is not told of others
}

// The keys of the matrix. All but the last are for all buckets, and that one for another bucket than the requests are about.
const (
	reads, operates, adminOfOne = "reads", "operates", "admin-of-flows"
	admins, enqueues            = "admins", "enqueues"
)

var (
	everyReader = []string{reads, operates, admins}
	anyBucket   = []string{reads, operates, admins, adminOfOne} // the page shows the buckets of the key
	operators   = []string{operates, admins}
)

func trials() []trial {
	at := func(method, path string) string { return method + " /console/" + path }
	all := []trial{
		{pattern: at("GET", "{$}"), path: "", served: anyBucket},
		{pattern: at("GET", "buckets/{bucket}"), path: "buckets/letters", served: everyReader},
		{pattern: at("GET", "buckets/{bucket}/dead"), path: "buckets/letters/dead", served: everyReader},
		{pattern: at("GET", "jobs"), path: "jobs", served: append([]string{enqueues}, anyBucket...)}, // an empty form
		{pattern: at("GET", "jobs"), path: "jobs?id=a", served: everyReader, secret: true},
		{pattern: at("GET", "schedules"), path: "schedules", served: anyBucket},
		{pattern: at("GET", "pools"), path: "pools", served: anyBucket},
		{pattern: at("GET", "limits"), path: "limits", served: anyBucket},
		{pattern: at("GET", "fleet"), path: "fleet", served: anyBucket},
		{pattern: at("GET", "audit"), path: "audit", served: everyReader},
		{pattern: at("GET", "audit"), path: "audit?bucket=letters", served: everyReader},
		{pattern: at("GET", "sessions"), path: "sessions", served: anyBucket},
		{pattern: at("POST", "sessions/{id}/end"), path: "sessions/none/end", served: anyBucket},
		{pattern: at("GET", "stream"), path: "stream", served: anyBucket},
		{pattern: at("GET", "stream"), path: "stream?bucket=letters", served: everyReader},
		{pattern: at("POST", "pools/{pool}/{action}"), path: "pools/vendor/release", served: operators},
		{pattern: at("POST", "logout"), path: "logout", served: append([]string{enqueues}, anyBucket...)},
		{pattern: at("GET", "login"), path: "login", open: true},
		{pattern: at("POST", "login"), path: "login", form: url.Values{"key": {reads}}, open: true},
		{pattern: at("GET", "assets/"), path: "assets/console.css", open: true},
	}
	for action, keys := range map[string][]string{
		"pause": operators, "resume": operators, "release": operators, "retry": operators, "drain": operators, "stop-drain": operators, "set": {admins}, "reset": {admins},
	} {
		all = append(all, trial{pattern: at("POST", "buckets/{bucket}/do/{action}"), path: "buckets/letters/do/" + action, form: url.Values{"rate": {"2/h"}}, served: keys})
	}
	for action, keys := range map[string][]string{"redrive": operators, "drop": {admins}} {
		all = append(all, trial{pattern: at("POST", "buckets/{bucket}/dead/{action}"), path: "buckets/letters/dead/" + action, form: url.Values{"id": {"a"}}, served: keys})
	}
	for action, keys := range map[string][]string{"redrive": operators, "drop": {admins}} {
		path := "buckets/letters/dead/all/" + action
		all = append(all, trial{pattern: at("GET", "buckets/{bucket}/dead/all/{action}"), path: path, served: keys},
			trial{pattern: at("POST", "buckets/{bucket}/dead/all/{action}"), path: path, form: url.Values{"confirm": {"letters"}}, served: keys})
	}
	for _, page := range []string{"jobs", "timetable"} {
		all = append(all, trial{pattern: at("GET", "buckets/{bucket}/"+page), path: "buckets/letters/" + page, served: everyReader})
	}
	for _, page := range []string{"flows", "flow", "groups"} {
		all = append(all, trial{pattern: at("GET", "buckets/{bucket}/"+page), path: "buckets/grouped/" + page + "?flow=acme&group=g", served: everyReader})
	}
	all = append(all, trial{pattern: at("POST", "buckets/{bucket}/jobs/cancel"), path: "buckets/letters/jobs/cancel", form: url.Values{"id": {"a"}}, served: []string{admins}, ofCallers: true})
	for _, action := range []string{"pause", "resume"} {
		form := url.Values{"flow": {"acme"}, "group": {"g"}}
		all = append(all, trial{pattern: at("POST", "buckets/{bucket}/flow/{action}"), path: "buckets/grouped/flow/" + action, form: form, served: operators},
			trial{pattern: at("POST", "buckets/{bucket}/groups/{action}"), path: "buckets/grouped/groups/" + action, form: form, served: operators})
	}
	for _, method := range []string{"GET", "POST"} {
		all = append(all, trial{pattern: at(method, "buckets/{bucket}/purge"), path: "buckets/letters/purge", form: url.Values{"confirm": {"letters"}}, served: []string{admins}})
	}
	for _, action := range []string{"pause", "resume", "fire"} {
		all = append(all, trial{pattern: at("POST", "schedules/{schedule}/{action}"), path: "schedules/nightly/" + action, served: operators, secret: true})
	}
	return all
}

// carrier is how a request shows its key.
type carrier struct {
	name    string
	headers []string
	bearer  bool
	foreign bool // a web page of another origin may have sent it
}

var carriers = []carrier{
	{name: "bearer", bearer: true},
	{name: "cookie"},
	{name: "cookie, own origin", headers: []string{"Sec-Fetch-Site", "same-origin"}},
	{name: "cookie, foreign Origin", headers: []string{"Origin", "https://evil.example"}, foreign: true},
	{name: "cookie, Sec-Fetch-Site: cross-site", headers: []string{"Sec-Fetch-Site", "cross-site"}, foreign: true},
	{name: "cookie, Sec-Fetch-Site: same-site", headers: []string{"Sec-Fetch-Site", "same-site"}, foreign: true},
}

// want is the class of a trial for a key, "" being none.
func (trial *trial) want(key string, by carrier) class {
	isPage := strings.HasPrefix(trial.pattern, "GET ")
	switch {
	case by.foreign && !isPage:
		return refused
	case trial.open:
		return served
	case key == "" || by.bearer:
		if isPage && !strings.HasPrefix(trial.path, "stream") {
			return login
		}
		return refused
	case trial.path == "logout":
		return login // that is where it leads
	case slices.Contains(trial.served, key):
		return served
	case trial.secret && key == adminOfOne, trial.ofCallers && key == enqueues:
		return unknown
	}
	return refused
}

// Every route × every key × every way to show it.
func TestRightsOfRoutes(t *testing.T) {
	t.Parallel()
	keys := []apikey.Key{
		keyOf(reads, []string{"*"}, apikey.RoleRead), keyOf(operates, []string{"*"}, apikey.RoleRead, apikey.RoleOperate), keyOf(admins, []string{"*"}, apikey.RoleAdmin),
		keyOf(adminOfOne, []string{"flows"}, apikey.RoleAdmin), keyOf(enqueues, []string{"*"}, apikey.RoleEnqueue),
	}
	s := newSite(t, keys...)
	v := s.visitor()
	v.http.Jar = nil
	v.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	v.send("PUT", "/v1/schedules/nightly", `{"cron":"0 2 * * *","bucket":"letters"}`, "Authorization", "Bearer "+admins, "Content-Type", "application/json").want(t, http.StatusOK)
	s.enqueue(shaper.Job{Bucket: "letters", ID: "a", Payload: []byte("1")}, shaper.Job{Bucket: "grouped", Group: "g", Flow: "acme", Payload: []byte("1")})

	tried, requests, sessions := map[string]bool{}, 0, map[string]string{}
	for _, trial := range trials() {
		tried[trial.pattern] = true
		for _, key := range []string{"", reads, operates, admins, adminOfOne, enqueues} {
			for _, by := range carriers {
				headers := slices.Clone(by.headers)
				switch {
				case key == "":
				case by.bearer:
					headers = append(headers, "Authorization", "Bearer "+key)
				default:
					if sessions[key] == "" { // a key may not log in often
						sessions[key] = v.session(key)
					}
					headers = append(headers, "Cookie", sessions[key])
					if trial.path == "logout" {
						delete(sessions, key)
					}
				}
				method, _, _ := strings.Cut(trial.pattern, " ")
				got := v.classOf(method, "/console/"+trial.path, trial.form, headers)
				if want := trial.want(key, by); got != want {
					t.Errorf("%s /console/%s as %q by %s: %s, want %s", method, trial.path, key, by.name, got, want)
				}
				requests++
			}
		}
	}
	for _, pattern := range console.Patterns() {
		if !tried[pattern] {
			t.Errorf("%s is tried by no request", pattern)
		}
	}
	t.Logf("%d requests", requests)
}

// session logs in, and returns the cookie.
func (v *visitor) session(key string) string {
	v.t.Helper()
	cookie, _, _ := strings.Cut(v.do(http.MethodPost, "/console/login", url.Values{"key": {key}}).header.Get("Set-Cookie"), ";")
	return cookie
}

// classOf sends a request, and reads no further than what it is answered with: a stream has no end.
func (v *visitor) classOf(method, path string, form url.Values, headers []string) class {
	v.t.Helper()
	request := must.Get(http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(form.Encode())))(v.t)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := v.http.Do(request)
	must.OK(v.t, err)
	_ = response.Body.Close()
	return classOf(response.StatusCode, response.Header.Get("Location"))
}
