package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

var (
	timeElement = regexp.MustCompile(`<time( [^>]*)?>`)
	dateTime    = regexp.MustCompile(` datetime="([^"]*)" title="([^"]*)"`)
)

// Each time of a page is one that programs can read, in UTC, and says so to people. The time of the server is there for the script.
func TestTimes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	v := s.visitor()
	s.enqueue(shaper.Job{Bucket: "letters", ID: "a", Delay: time.Hour, Payload: []byte(`1`)}, shaper.Job{Bucket: "flows", Flow: "acme", Payload: []byte("1")})
	v.post("/console/buckets/letters/do/pause", "reason", "a test").want(t, http.StatusOK)
	v.post("/console/buckets/letters/do/set", "rate", "2/h").want(t, http.StatusOK)
	v.post("/console/buckets/flows/flow/pause", "flow", "acme").want(t, http.StatusOK)
	for _, path := range pagePaths {
		page := v.get(path)
		for _, element := range timeElement.FindAllString(page.text, -1) {
			match := dateTime.FindStringSubmatch(element)
			if match == nil {
				t.Errorf("%s has %s", path, element)
				continue
			}
			at, err := time.Parse(time.RFC3339, match[1])
			if err != nil || !strings.HasSuffix(match[1], "Z") || at.Format("2006-01-02 15:04:05 UTC") != match[2] {
				t.Errorf("%s has %s: %v", path, element, err)
			}
		}
		page.want(t, http.StatusOK, `<footer data-now="20`, `<dialog id="keys" aria-labelledby="keys-title">`, "<kbd>?</kbd>", "<kbd>/</kbd>", "<kbd>t</kbd>", "<kbd>s</kbd>")
	}
	for _, path := range []string{"/console/buckets/letters", "/console/jobs?id=a", "/console/audit", "/console/buckets/letters/jobs", "/console/buckets/nightly/timetable"} {
		if page := v.get(path); len(timeElement.FindAllString(page.text, -1)) < 2 { // one is in the footer
			t.Errorf("%s has no times", path)
		}
	}
}
