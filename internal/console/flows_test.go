package console_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

var flowLink = regexp.MustCompile(`href="(flow\?[^"]*)"`)

// hostileNames are names that a path, a page or a shell would read as something else.
var hostileNames = []string{
	"..", ".", "a/../../b", "/v1", "a?b=c&d#e", `"><script>alert(1)</script>`, "'; rm -rf / #", "--json", "%2e%2e", " ", "ünï\u202ecode", "a\nb", "flow=other", strings.Repeat("x", 256),
}

// Flows of any name are listed, shown, paused and resumed, and a page leads to each.
func TestFlowsOfAnyName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	v.get("/console/buckets/flows/flows").want(t, http.StatusOK, "No flow has waiting jobs", "dispatcher flow set flows NAME")
	for _, name := range hostileNames {
		s.enqueue(shaper.Job{Bucket: "flows", Flow: name, Payload: []byte("1")})
	}
	list := v.get("/console/buckets/flows/flows")
	list.want(t, http.StatusOK, "The fullest of the 14 flows")
	links := map[string]bool{}
	for _, match := range flowLink.FindAllStringSubmatch(list.text, -1) {
		links[v.get("/console/buckets/flows/"+html.UnescapeString(match[1])).at] = true
	}
	must.Equal(t, len(links), len(hostileNames), "links: %v", links)
	for _, name := range hostileNames {
		path := "/console/buckets/flows/flow?flow=" + escaped(name)
		page := v.get(path)
		page.want(t, http.StatusOK, "<h1>Flow ", "<dt>Waiting<dd>1")
		if strings.Contains(page.text, "<script>alert") || strings.Contains(page.text, "<h1>Flow  <") {
			t.Errorf("%q: %s", name, page.text)
		}
		if ids := jobIDs(v.get("/console/buckets/flows/jobs?state=waiting&flow=" + escaped(name))); len(ids) != 1 {
			t.Errorf("%q: jobs %q", name, ids)
		}
		after := v.post("/console/buckets/flows/flow/pause", "flow", name, "reason", "of "+name)
		after.want(t, http.StatusOK, "It is paused.", "flow/resume")
		v.post("/console/buckets/flows/flow/resume", "flow", name).want(t, http.StatusOK, "It runs again.", "flow/pause")
		v.post("/console/buckets/flows/flow/release", "flow", name).want(t, http.StatusOK, "nothing to change")
	}
	v.get("/console/buckets/flows/flow?flow=--json").want(t, http.StatusOK, "dispatcher flow pause flows -- --json")
	v.get("/console/buckets/flows/flow?flow="+escaped(hostileNames[6])).want(t, http.StatusOK, html.EscapeString(`dispatcher flow pause flows ''\''; rm -rf / #'`))
	v.get("/console/buckets/flows/flow?flow=unheard").want(t, http.StatusOK, "Nothing is known of it", "dispatcher flow set --rate 5/s flows unheard")
	v.post("/console/buckets/flows/flow/pause", "flow", "unheard").want(t, http.StatusNotFound, "unheard")
	v.get("/console/buckets/flows/flows?q=unheard").want(t, http.StatusOK, "No flow is meant")
	v.get("/console/buckets/letters/flows").want(t, http.StatusConflict, "letters")
	v.post("/console/buckets/flows/flow/nothing", "flow", "..").want(t, http.StatusNotFound)
	v.get("/console/buckets/flows").want(t, http.StatusOK, `href="flows/flows"`, `href="flows/flow?flow=..`)
}

// A flow that its receiver holds up says so, and is let go.
func TestFailingFlows(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	s.deliver()
	s.enqueue(shaper.Job{Bucket: "hooks", ID: "gone-1", Flow: "left", Payload: []byte("1")}, shaper.Job{Bucket: "hooks", ID: "held-1", Flow: "busy", Payload: []byte("1")})
	v.getUntil(t, "/console/buckets/hooks/flow?flow=left", "<dt>Disabled<dd>").want(t, http.StatusOK, "dispatcher flow enable hooks left", "flow/enable")
	v.getUntil(t, "/console/buckets/hooks/flow?flow=busy", "<dt>Held until<dd>").want(t, http.StatusOK, "dispatcher flow release hooks busy", "flow/release")
	v.get("/console/buckets/hooks/flows?failing=true").want(t, http.StatusOK, "flow?flow=left", "flow?flow=busy", "dispatcher flow list hooks --failing", "checked")
	v.get("/console/buckets/hooks/flows?q=us").want(t, http.StatusOK, "flow?flow=busy", "dispatcher flow list hooks --match us")
	v.post("/console/buckets/hooks/flow/enable", "flow", "left").want(t, http.StatusOK, "It runs again.")
	v.post("/console/buckets/hooks/flow/release", "flow", "busy").want(t, http.StatusOK, "Holds and open breakers are ended.")
}

// Groups are listed with their flows, and paused.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin), keyOf("reader", []string{"*"}, apikey.RoleRead))
	v := s.visitor()
	v.login("root")
	v.get("/console/buckets/grouped/groups").want(t, http.StatusOK, "No group has jobs", "dispatcher group set grouped NAME")
	for _, group := range hostileNames {
		s.enqueue(shaper.Job{Bucket: "grouped", Group: group, Flow: "f/1", Payload: []byte("1")})
		v.post("/console/buckets/grouped/groups/pause", "group", group).want(t, http.StatusOK, "It is paused.")
		v.get("/console/buckets/grouped/flow?flow=f%2F1&group="+escaped(group)).want(t, http.StatusOK, "<dt>Waiting<dd>1")
		v.get("/console/buckets/grouped/flows?group="+escaped(group)).want(t, http.StatusOK, "The fullest of the ", "f/1</a>")
		v.post("/console/buckets/grouped/flow/pause", "group", group, "flow", "f/1").want(t, http.StatusOK, "It is paused.", "flow/resume")
		if ids := jobIDs(v.get("/console/buckets/grouped/jobs?group=" + escaped(group))); len(ids) != 1 {
			t.Errorf("%q: jobs %q", group, ids)
		}
	}
	v.get("/console/buckets/grouped/groups").want(t, http.StatusOK, "dispatcher group resume grouped -- --json")
	v.post("/console/buckets/grouped/groups/resume", "group", "..").want(t, http.StatusOK, "It runs again.")
	v.post("/console/buckets/grouped/groups/nothing", "group", "..").want(t, http.StatusNotFound)
	v.get("/console/buckets/grouped").want(t, http.StatusOK, `href="grouped/groups"`)
	v.get("/console/buckets/letters/groups").want(t, http.StatusConflict)
	v.login("reader")
	for _, path := range []string{"/console/buckets/grouped/groups", "/console/buckets/grouped/flow?flow=f%2F1&group=.."} {
		if page := v.get(path); page.status != http.StatusOK || strings.Contains(page.text, "Actions") {
			t.Errorf("a reader sees %s: %d", path, page.status)
		}
	}
	v.post("/console/buckets/grouped/groups/pause", "group", "..").want(t, http.StatusForbidden)
	v.post("/console/buckets/grouped/flow/pause", "group", "..", "flow", "f/1").want(t, http.StatusForbidden)
}
