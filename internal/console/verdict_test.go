package console_test

import (
	"bytes"
	"encoding/json"
	"html"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/cli"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// age is what differs between two looks at the same verdict.
var age = regexp.MustCompile(`, the oldest \d+ s`)

// The API, the command line and the console say the same of a bucket: the cause, whose it is, since when, how old the oldest job is, and what helps.
func TestOneVerdictForAllViews(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	began := time.Now()
	s.enqueue(shaper.Job{Bucket: "work", ID: "w", Payload: []byte("1")}, shaper.Job{Bucket: "letters", ID: "l", Payload: []byte("1")},
		shaper.Job{Bucket: "flows", ID: "f", Flow: "acme", Payload: []byte("1")}, shaper.Job{Bucket: "grouped", ID: "g", Group: "north", Flow: "acme", Payload: []byte("1")},
		shaper.Job{Bucket: "hooks", ID: "h", Flow: "acme", Payload: []byte("1"), Delay: time.Hour})
	op := must.Get(operator.New(operator.Config{Redis: s.redis, Buckets: moreBuckets()[:1], Timeout: patience}))(t)
	by := op.As("anna")
	for _, err := range []error{by.Bucket("work").Pause(t.Context(), "a test"), by.Bucket("flows").Flow("acme").Pause(t.Context(), ""), by.Bucket("grouped").Group("north").Pause(t.Context(), "")} {
		must.OK(t, err)
	}
	v := s.visitor()
	for bucket, want := range map[string]struct {
		code   operator.WhyCode
		scope  shaper.Scope
		action string
		since  bool
	}{
		"work":    {operator.WhyPaused, shaper.ScopeBucket, "bucket resume work", true},
		"flows":   {operator.WhyPaused, shaper.ScopeFlow, "flow resume flows acme", true},
		"grouped": {operator.WhyPaused, shaper.ScopeGroup, "group resume grouped north", true},
		"letters": {operator.WhyNoDispatcher, shaper.ScopeBucket, "run", false},
		"hooks":   {operator.WhyNoDispatcher, shaper.ScopeBucket, "run", false}, // also of a job that is delayed
		"nightly": {code: operator.WhyEmpty},
	} {
		var api, command opsview.Verdict
		must.OK(t, json.Unmarshal([]byte(v.get("/v1/buckets/"+bucket+"/why").text), &api))
		look := func(more ...string) string {
			var out, fault bytes.Buffer
			if code := cli.RunDispatcher(t.Context(), append([]string{"bucket", "why", bucket, "--server", s.url}, more...), nil, strings.NewReader(""), &out, &fault); code != 0 {
				t.Fatalf("exit code %d: %s", code, fault.String())
			}
			return out.String()
		}
		must.OK(t, json.Unmarshal([]byte(look("--json")), &command))
		elapsed := time.Since(began).Seconds()
		if api.Code != want.code || len(api.Blocked) == 0 != (want.action == "" && want.scope == "") {
			t.Errorf("%s: %+v", bucket, api)
			continue
		}
		for i := range api.Blocked {
			c := &api.Blocked[i]
			if c.Code != want.code || c.Scope != want.scope || c.Action != want.action || c.Since != nil != want.since || want.since && time.Since(*c.Since).Seconds() > elapsed+1 {
				t.Errorf("%s: blocked by %+v", bucket, c)
			}
			if c.OldestAge <= 0 || c.OldestAge > elapsed+1 || api.OldestAge < c.OldestAge {
				t.Errorf("%s: the oldest job is %g s old, of the bucket %g, after %g", bucket, c.OldestAge, api.OldestAge, elapsed)
			}
			c.OldestAge = 0
		}
		for i := range command.Blocked {
			command.Blocked[i].OldestAge = 0
		}
		sentence := age.ReplaceAllString(api.Sentence, "")
		api.OldestAge, command.OldestAge = 0, 0
		api.Sentence, command.Sentence = sentence, age.ReplaceAllString(command.Sentence, "")
		if !reflect.DeepEqual(api, command) {
			t.Errorf("%s: the API has\n%+v, and the command\n%+v", bucket, api, command)
		}
		if text := age.ReplaceAllString(look(), ""); !strings.Contains(text, sentence) || !strings.Contains(text, want.action) {
			t.Errorf("%s: the command says\n%s", bucket, text)
		}
		page := v.get("/console/buckets/" + bucket)
		shown := age.ReplaceAllString(html.UnescapeString(page.text), "")
		if page.status != http.StatusOK || !strings.Contains(shown, "<strong>"+string(want.code)+"</strong>: "+sentence) || want.action != "" && !strings.Contains(shown, "<code>dispatcher "+want.action+"</code>") {
			t.Errorf("%s: the console says\n%s", bucket, shown)
		}
		if want.since && !strings.Contains(page.text, api.Blocked[0].Since.UTC().Format("2006-01-02T15:04:05")) {
			t.Errorf("%s: the console does not say since %s", bucket, api.Blocked[0].Since)
		}
	}
}
