package console_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
)

// kill makes dead letters of a bucket that is there already.
func (s *site) kill(bucket string, from, n int, reason string, status int) {
	s.t.Helper()
	key := stored.Key(bucket, "")
	pipe := s.redis.Pipeline()
	for i := from; i < from+n; i++ {
		id := fmt.Sprint("dead", i)
		pipe.HSet(s.t.Context(), key+"body", id, fmt.Sprintf("%d 1 00000000000cn001 \n{\"n\":%d}", i, i))
		pipe.HSet(s.t.Context(), key+"meta", id, fmt.Sprintf(`5 1 1 0 0 - {"cause":"permanent","status":%d,"reason":%q,"detail":"no"}`, status, reason))
		pipe.ZAdd(s.t.Context(), key+"dead", redis.Z{Member: id, Score: float64(1783228800000000 + i)})
	}
	must.Get(pipe.Exec(s.t.Context()))(s.t)
}

// inputs are the hidden inputs of a page's forms.
func (p seen) inputs() url.Values {
	values := url.Values{}
	for _, in := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(p.text, -1) {
		values.Set(in[1], html.UnescapeString(in[2]))
	}
	return values
}

// Dead letters stand by reason; a link leads to those of one, and all that match are put back step by step, in one record of the audit.
func TestRedriveAllThatMatch(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	s.enqueue(shaper.Job{Bucket: "letters", ID: "first", Payload: []byte("1")})
	s.kill("letters", 0, 2500, "http_503", 503)
	s.kill("letters", 2500, 300, "odd&reason=x", 0)
	page := v.get("/console/buckets/letters/dead")
	page.want(t, http.StatusOK, "Why they died", "http_503", "<code>dispatcher dead reasons letters</code>")
	only := regexp.MustCompile(`href="(\?[^"]*odd[^"]*)"`).FindStringSubmatch(page.text)
	if only == nil {
		t.Fatalf("no link to a reason: %s", page.text)
	}
	found := v.get("/console/buckets/letters/dead" + html.UnescapeString(only[1]))
	found.want(t, http.StatusOK, "dead2799", "odd&amp;reason=x")
	if strings.Contains(found.text, "http_503") {
		t.Error("the filter lets others through")
	}
	older := regexp.MustCompile(`rel="next" href="(\?[^"]*)"`).FindStringSubmatch(found.text)
	v.get("/console/buckets/letters/dead"+html.UnescapeString(older[1])).want(t, http.StatusOK, "dead2749")

	ask := v.get("/console/buckets/letters/dead/all/redrive?reason=http_503")
	ask.want(t, http.StatusOK, "oldest that were looked at; there are more", "dispatcher dead redrive letters --reason http_503 --dry-run")
	form, steps := ask.inputs(), 0
	for steps = 0; ; steps++ {
		step := v.do(http.MethodPost, "/console/buckets/letters/dead/all/redrive", form)
		if step.want(t, http.StatusOK, "put back"); step.status != http.StatusOK {
			t.Fatal(step.text)
		}
		if form = step.inputs(); form.Get("cursor") == "" {
			step.want(t, http.StatusOK, "2500 dead letters put back, 2800 looked at. This was all of them.")
			break
		}
		step.want(t, http.StatusOK, "Stop here", "data-run")
	}
	if left := s.redis.ZCard(t.Context(), stored.Key("letters", "dead")).Val(); left != 300 || steps < 1 {
		t.Errorf("%d are left after %d steps", left, steps)
	}
	audit := v.get("/console/audit?bucket=letters")
	if n := strings.Count(audit.text, "redriveDead"); n != 1 || !strings.Contains(audit.text, `<td class="n">2500</td>`) {
		t.Errorf("%d records: %s", n, audit.text)
	}
}

// A drop of all wants the name of the bucket, and a script is answered in JSON.
func TestDropAllThatMatch(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin), keyOf("oncall", []string{"*"}, apikey.RoleOperate, apikey.RoleRead))
	s.enqueue(shaper.Job{Bucket: "letters", ID: "first", Payload: []byte("1")})
	s.kill("letters", 0, 10, "http_410", 410)
	oncall := s.visitor()
	oncall.login("oncall")
	if page := oncall.get("/console/buckets/letters/dead"); strings.Contains(page.text, "all/drop") || !strings.Contains(page.text, "all/redrive") {
		t.Error("the page of a key that may not drop")
	}
	oncall.get("/console/buckets/letters/dead/all/drop").want(t, http.StatusForbidden)
	oncall.post("/console/buckets/letters/dead/all/drop", "confirm", "letters").want(t, http.StatusForbidden)
	v := s.visitor()
	v.login("root")
	ask := v.get("/console/buckets/letters/dead/all/drop?status=410")
	ask.want(t, http.StatusOK, "10 dead letters", "gone for good", `name="confirm"`)
	form := ask.inputs()
	v.do(http.MethodPost, "/console/buckets/letters/dead/all/drop", form).want(t, http.StatusBadRequest, "the bucket&#39;s name")
	form.Set("confirm", "letters")
	step := v.do(http.MethodPost, "/console/buckets/letters/dead/all/drop", form, "Accept", "application/json")
	var told struct {
		Said, Cursor string
		Done         int
	}
	if err := json.Unmarshal([]byte(step.text), &told); err != nil || told.Done != 10 || told.Cursor != "" || told.Said != "10 dead letters dropped, 10 looked at. This was all of them." {
		t.Errorf("%d %s: %v", step.status, step.text, err)
	}
	v.get("/console/buckets/letters/dead/all/burn").want(t, http.StatusNotFound)
	v.get("/console/buckets/letters/dead?status=x").want(t, http.StatusBadRequest, "want a number")
	v.get("/console/buckets/letters/dead?since=x").want(t, http.StatusBadRequest, "since: want a time such as 2026-03-01T12:00:00Z")
	ago := v.get("/console/buckets/letters/dead/all/redrive?until=2h")
	if ago.want(t, http.StatusOK); !regexp.MustCompile(`^\d{4}-\d\d-\d\dT.*Z$`).MatchString(ago.inputs().Get("until")) { // else each step would mean others
		t.Errorf("the steps have until %q", ago.inputs().Get("until"))
	}
	v.get("/console/buckets/letters/dead?cause=bad").want(t, http.StatusBadRequest, "want one of")
}

// A purge tells how many jobs it would drop, and wants the name of the bucket.
func TestPurge(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	s.enqueue(shaper.Job{Bucket: "letters", ID: "a", Payload: []byte("1")}, shaper.Job{Bucket: "letters", ID: "b", Payload: []byte("1")})
	v.get("/console/buckets/letters").want(t, http.StatusOK, "letters/purge")
	v.get("/console/buckets/letters/purge").want(t, http.StatusOK, "<strong>2 jobs</strong>", "dispatcher bucket purge letters --dry-run")
	v.post("/console/buckets/letters/purge", "confirm", "flows").want(t, http.StatusBadRequest, "name")
	v.post("/console/buckets/letters/purge", "confirm", "letters").want(t, http.StatusOK, "The waiting jobs are dropped.")
	v.post("/console/buckets/letters/purge", "confirm", "letters").want(t, http.StatusOK, "nothing to change")
	v.get("/console/buckets/nosuch/purge").want(t, http.StatusNotFound)
}
