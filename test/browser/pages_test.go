package browser

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/redistest"
)

// pages are all pages of a console, by the names of their pictures.
var pages = map[string]string{
	"overview": "", "overview-search": "?q=e&sort=waiting", "bucket": "buckets/even", "bucket-flows": "buckets/letters", "bucket-paused": "buckets/paused",
	"bucket-dead": "buckets/refused", "bucket-windows": "buckets/nightly", "dead": "buckets/refused/dead", "dead-none": "buckets/even/dead", "job": "jobs?id=a-job", "job-none": "jobs?id=none",
	"dead-reason": "buckets/refused/dead?cause=permanent&status=400", "dead-redrive": "buckets/refused/dead/all/redrive?status=400", "dead-drop": "buckets/refused/dead/all/drop", "purge": "buckets/paused/purge",
	"job-list": "buckets/paused/jobs?state=waiting", "job-list-none": "buckets/even/jobs", "flows": "buckets/letters/flows", "flow": "buckets/letters/flow?flow=acme", "groups": "buckets/parts/groups",
	"timetable": "buckets/nightly/timetable", "timetable-none": "buckets/even/timetable",
	"jobs": "jobs", "schedules": "schedules", "pools": "pools", "limits": "limits", "fleet": "fleet", "audit": "audit", "login": "login", "missing": "buckets/none",
}

// withJobs has the buckets of [buckets] hold something.
func withJobs(t *testing.T) *site {
	t.Helper()
	s := newSite(t, buckets, true)
	s.do(http.MethodPost, "http://"+s.ops+"/v1/buckets/paused/pause", map[string]any{"reason": "the customer asked for it"})
	s.enqueue("paused", 25, map[string]any{"payload": map[string]any{"n": 1}})
	s.enqueue("refused", 12, map[string]any{"payload": "x"})
	s.enqueue("even", 30, map[string]any{"payload": map[string]any{"order": 17}})
	s.enqueue("letters", 40, map[string]any{"payload": "x", "flow": "acme"})
	s.enqueue("parts", 3, map[string]any{"payload": "x", "flow": "acme", "group": "eu"})
	s.enqueue("letters", 1, map[string]any{"payload": map[string]any{"n": "a long payload " + strings.Repeat("0123456789", 30)}, "flow": "another-customer", "id": "a-job"})
	await(t, "the receiver has jobs of both buckets", func() bool { return s.got("refused") == 12 && s.got("even") == 30 })
	return s
}

// Every page loads, writes nothing to the browser's console, does not scroll sideways, and breaks no rule of WCAG 2.2 AA.
func TestPages(t *testing.T) {
	t.Parallel()
	p := newTab(t)
	s := withJobs(t)
	p.as(look{script: true, width: 1280})
	p.login(s)
	looks := []look{{script: true, width: 1280}, {script: true, width: 390, dark: true}}
	if redistest.Soak {
		looks = nil
		for _, width := range []int64{1280, 390} {
			for _, dark := range []bool{false, true} {
				looks = append(looks, look{dark, true, width}, look{dark, false, width})
			}
		}
	}
	for _, l := range looks {
		p.as(l)
		for name, path := range pages {
			p.checkPage(s, name+"-"+l.String(), path, l)
		}
	}
}

func (p *tab) checkPage(s *site, name, path string, l look) {
	t := p.t
	t.Helper()
	want := int64(http.StatusOK)
	if strings.HasPrefix(name, "missing") || strings.HasPrefix(name, "job-none") {
		want = http.StatusNotFound
	}
	p.messages()
	if status := p.open(s.console + path); status != want {
		t.Errorf("%s: %d, want %d", name, status, want)
	}
	if over := eval[float64](p, "document.scrollingElement.scrollWidth - innerWidth"); over > 0 {
		t.Errorf("%s scrolls sideways by %v pixels", name, over)
	}
	p.keep(name)
	for _, said := range p.messages() {
		if want == http.StatusOK || !strings.Contains(said, "404") { // which the browser itself tells of the page
			t.Errorf("%s: in the browser's console stands %s", name, said)
		}
	}
	if l.script { // of which axe is one
		p.checkAccess(t, name)
		if l.width > 390 {
			p.checkReach(t, name)
		}
	}
}
