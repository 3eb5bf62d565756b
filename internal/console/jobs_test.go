package console_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

var jobLink = regexp.MustCompile(`href="../../jobs\?id=([^"]*)"`)

// jobIDs are the ids of the jobs of a list.
func jobIDs(page seen) (ids []string) {
	for _, match := range jobLink.FindAllStringSubmatch(page.text, -1) {
		ids = append(ids, match[1])
	}
	return ids
}

// A list has the jobs of its filter, and a job is a timeline in each of its states.
func TestJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	v.get("/console/buckets/work/jobs").want(t, http.StatusOK, "No job waits or is in flight", "producer send work 1")
	v.get("/console/buckets/work/jobs?state=done&since=1h").want(t, http.StatusOK, "has taken no job yet")
	v.get("/console/jobs").want(t, http.StatusOK, "dispatcher job find ID")
	s.deliver()
	for _, id := range []string{"done-1", "dead-1", "again-1", "flying-1"} {
		s.enqueue(shaper.Job{Bucket: "work", ID: id, Payload: []byte(`"text of ` + id + `"`)})
	}
	s.enqueue(shaper.Job{Bucket: "work", ID: "later-1", Delay: 2 * time.Hour, Payload: []byte(`1`)}, shaper.Job{Bucket: "letters", ID: "queued-1", Payload: []byte(`1`)})
	for _, c := range []struct {
		id    string
		texts []string
	}{
		{"done-1", []string{"<dd>done", "<strong>last departure</strong>", "<strong>done</strong>", "204, after "}},
		{"dead-1", []string{"<dd>dead", "<strong>attempt 1</strong>", "http_404", "nobody &lt;b&gt;lives", "<strong>dead</strong>", `href="buckets/work/dead"`, "dispatcher dead redrive work dead-1", "text of dead-1"}},
		{"again-1", []string{"<dd>retrying", "500, http_500, after ", "then retry, no luck", "<strong>next attempt due</strong>", "<strong>next departure</strong>", "dispatcher job cancel work again-1"}},
		{"flying-1", []string{"<dd>in_flight", "<strong>in flight</strong>", "the end of its lease"}},
		{"later-1", []string{"<dd>scheduled", "<strong>due</strong>", "<strong>next departure</strong>", "jobs/cancel"}},
		{"queued-1", []string{"<dd>queued", "<strong>enqueued</strong>", "jobs/cancel"}},
	} {
		v.getUntil(t, "/console/jobs?id="+c.id, c.texts[0]).want(t, http.StatusOK, c.texts...)
	}
	for query, want := range map[string]string{
		"": "flying-1 again-1 later-1", "?state=in_flight": "flying-1", "?state=retrying": "again-1", "?state=scheduled": "later-1", "?state=later": "again-1 later-1", "?state=queued": "", "?state=done": "done-1",
		"?state=waiting&since=1h": "again-1 later-1", "?until=1h": "", "?since=2020-01-01T00:00:00Z&state=in_flight": "flying-1",
	} {
		must.Equal(t, strings.Join(jobIDs(v.get("/console/buckets/work/jobs"+query)), " "), want, "%s", query)
	}
	v.get("/console/buckets/work/jobs?state=in_flight&since=90m").want(t, http.StatusOK, `<option value="in_flight" selected>`, `value="90m"`, "dispatcher job list work --state in_flight --since 90m")
	v.get("/console/buckets/work").want(t, http.StatusOK, `href="work/jobs?state=queued"`, `href="work/jobs?state=later"`, `href="work/jobs?state=in_flight"`)
	for _, query := range []string{"since=soon", "until=-1h", "state=lost", "cursor=x"} {
		must.Equal(t, v.get("/console/buckets/work/jobs?"+query).status, http.StatusBadRequest, "%s", query)
	}
	v.get("/console/buckets/none/jobs").want(t, http.StatusNotFound, "none")
}

// A list goes on by its cursor, and keeps its filter.
func TestJobCursor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	const flow = `a&state=done/../"'<b>`
	var jobs []shaper.Job
	for range 120 {
		jobs = append(jobs, shaper.Job{Bucket: "flows", Flow: flow, Payload: []byte("1")}, shaper.Job{Bucket: "flows", Flow: "other", Payload: []byte("1")})
	}
	s.enqueue(jobs...)
	next := regexp.MustCompile(`rel="next" href="([^"]*)"`)
	found := map[string]bool{}
	for path, pages := "/console/buckets/flows/jobs?state=waiting&flow="+escaped(flow), 1; ; pages++ {
		page := v.get(path)
		page.want(t, http.StatusOK)
		for _, id := range jobIDs(page) {
			found[id] = true
		}
		match := next.FindStringSubmatch(page.text)
		if match == nil {
			if pages != 3 || len(found) != 120 {
				t.Errorf("%d pages with %d jobs", pages, len(found))
			}
			break
		}
		path = "/console/buckets/flows/jobs" + html.UnescapeString(match[1])
	}
}

// A waiting job is cancelled by those who may enqueue, and no other is.
func TestCancelJob(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin), keyOf("reader", []string{"*"}, apikey.RoleRead), keyOf("both", []string{"*"}, apikey.RoleRead, apikey.RoleEnqueue))
	s.enqueue(shaper.Job{Bucket: "letters", ID: "a", Payload: []byte("1")}, shaper.Job{Bucket: "letters", ID: "b", Payload: []byte("1")})
	v := s.visitor()
	v.login("reader")
	if page := v.get("/console/jobs?id=a"); strings.Contains(page.text, "jobs/cancel") {
		t.Error("a reader sees the button")
	}
	v.post("/console/buckets/letters/jobs/cancel", "id", "a").want(t, http.StatusForbidden)
	v.login("root")
	v.get("/console/jobs?id=a").want(t, http.StatusOK, "jobs/cancel", "dispatcher job cancel letters a")
	page := v.post("/console/buckets/letters/jobs/cancel", "id", "a")
	page.want(t, http.StatusOK, "It is cancelled.", "<dd>cancelled", "when is not kept")
	must.Equal(t, page.at, "/console/jobs?id=a&did=cancel", "it leads to")
	v.post("/console/buckets/letters/jobs/cancel", "id", "none").want(t, http.StatusNotFound)
	v.post("/console/buckets/letters/jobs/cancel").want(t, http.StatusBadRequest, "no job is named")
	v.get("/console/audit").want(t, http.StatusOK, "cancelJob", "key root")
}
