package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
)

// asked are the fields of pages that take a text, with where the text goes; %s is the text. A page shows the text where shown is true.
var asked = []struct {
	path  string
	shown bool
}{
	{"/console/?q=%[1]s&did=%[1]s", true}, {"/console/?sort=%s", false}, {"/console/?cursor=%s", false},
	{"/console/buckets/%s", false}, {"/console/buckets/%s/dead", false},
	{"/console/buckets/letters/dead?q=%[1]s&reason=%[1]s", true}, {"/console/buckets/letters/dead?cause=%s", true},
	{"/console/buckets/letters/dead?cursor=%s", false}, {"/console/jobs?id=%s", false}, {"/console/audit?bucket=%s", true}, {"/console/audit?author=%s", true}, {"/console/audit?cursor=%s", false},
	{"/console/login?next=%s", true}, {"/console/stream?bucket=%s", false}, {"/console/%s", false}, {"/console/assets/%s", false},
}

// actions are the fields of forms. That of reasons is in TestHostileData.
var actions = []struct{ path, field string }{
	{"/console/buckets/letters/do/set", "rate"}, {"/console/buckets/letters/do/release", "flows"}, {"/console/buckets/letters/dead/drop", "id"},
	{"/console/buckets/letters/dead/redrive", "q"}, {"/console/buckets/letters/do/%s", ""}, {"/console/buckets/%s/do/pause", ""}, {"/console/schedules/%s/pause", ""}, {"/console/pools/%s/release", ""},
	{"/console/login", "key"}, {"/console/login", "next"},
}

// each carries out something for each text, a few at a time.
func each(texts []string, do func(i int, text string)) {
	var all sync.WaitGroup
	const atATime = 4
	for first := range atATime {
		all.Go(func() {
			for i := first; i < len(texts); i += atATime {
				do(i, texts[i])
			}
		})
	}
	all.Wait()
}

// isPage reports whether an answer is one of the console's pages; others are of the server, and have no markup.
func (p seen) isPage(t *testing.T) bool {
	t.Helper()
	kind := p.header.Get("Content-Type")
	if strings.HasPrefix(kind, "text/html") {
		return true
	}
	if p.status == http.StatusOK && !strings.HasPrefix(kind, "text/") || p.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s is %q", p.at, kind)
	}
	return false
}

// What a visitor asks for, in any field, is a text on the page.
func TestHostileQuestions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	known := s.known()
	visitor := s.visitor()
	for i, field := range asked {
		each(hostileTo(i), func(_ int, text string) {
			escape := url.PathEscape
			if strings.Contains(field.path, "?") {
				escape = url.QueryEscape
			}
			page := visitor.get(fmt.Sprintf(field.path, escape(text)))
			if page.status >= http.StatusInternalServerError {
				t.Errorf("%s: %d %s", page.at, page.status, page.text)
			}
			if page.isPage(t) {
				if texts := known.judge(t, page); field.shown && page.status == http.StatusOK {
					wantShown(t, page, texts, text)
				}
			}
		})
	}
}

// The same of the fields of forms.
func TestHostileForms(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	known := s.known()
	for i, action := range actions {
		visitor := s.visitor()
		each(hostileTo(i), func(_ int, text string) {
			path, form := action.path, url.Values{"id": {"a"}}
			if action.field == "" {
				path = fmt.Sprintf(path, url.PathEscape(text))
			} else {
				form.Set(action.field, text)
			}
			page := visitor.do(http.MethodPost, path, form)
			if page.status >= http.StatusInternalServerError {
				t.Errorf("%s with %q: %d %s", page.at, text, page.status, page.text)
			}
			if page.isPage(t) {
				known.judge(t, page)
			}
		})
	}
}

// What a producer, a receiver or another operator has left is a text on the page.
func TestHostileData(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	known := s.known()
	v := s.visitor()
	texts := hostile()
	s.leave(texts, "h")
	each(texts, func(i int, text string) {
		page := v.get(fmt.Sprint("/console/jobs?id=h", i))
		page.want(t, http.StatusOK)
		shown := known.judge(t, page)
		if utf8.ValidString(text) { // other payloads are shown byte by byte
			wantShown(t, page, shown, "payload "+text)
		}
		if flow := strings.ToValidUTF8(text, "?"); len(flow) <= shaper.MaxFlowBytes && !slices.ContainsFunc(shown, func(shown string) bool {
			return visible(shown) == visible(flow) || visible(shown) == visible(strconv.Quote(flow))
		}) {
			t.Errorf("%q does not show the flow %q", page.at, flow)
		}
	})
	for _, path := range []string{"/console/", "/console/buckets/flows", "/console/buckets/letters", "/console/audit"} {
		known.judge(t, v.get(path))
	}
	next := "/console/buckets/letters/dead"
	for pages := 0; next != ""; pages++ {
		page := v.get(next)
		page.want(t, http.StatusOK)
		shown := known.judge(t, page)
		_, _, links := readPage(t, page.text)
		next = ""
		for _, link := range links {
			if strings.Contains(link, "cursor=") {
				next = "/console/buckets/letters/dead" + link
			}
		}
		if pages == 0 { // the latest
			for _, text := range texts[len(texts)-10:] {
				wantShown(t, page, shown, text)
			}
		}
		if want := (len(texts) - 1) / 50; next == "" && pages < want {
			t.Errorf("dead letters are on %d pages, want more than %d", pages+1, want)
		}
	}
	for _, text := range texts {
		page := v.post("/console/buckets/letters/do/pause", "reason", text)
		shown := known.judge(t, page)
		if page.status == http.StatusOK {
			wantShown(t, page, shown, text)
		}
	}
	known.judge(t, v.get("/console/audit"))
}

// leave leaves jobs with texts in all of their fields, and as many dead letters.
func (s *site) leave(texts []string, id string) {
	s.t.Helper()
	pipe := s.redis.Pipeline()
	for i, text := range texts {
		name := fmt.Sprint(id, i)
		s.enqueue(shaper.Job{Bucket: "letters", ID: name, Payload: []byte("payload " + text)})
		if flow := strings.ToValidUTF8(text, "?"); len(flow) <= shaper.MaxFlowBytes {
			s.enqueue(shaper.Job{Bucket: "flows", ID: name, Flow: flow, Payload: []byte("1")})
		}
		key := stored.Key("letters", "")
		dead := id + "dead" + name
		answer := must.Get(json.Marshal(shaper.LastResponse{Cause: text, Status: http.StatusNotFound, Reason: text, Detail: text, Body: text}))(s.t)
		pipe.HSet(s.t.Context(), key+"body", dead, fmt.Sprintf("%d 1 00000000000cn001 \n%s", i, text))
		pipe.HSet(s.t.Context(), key+"meta", dead, "5 1 1 0 0 - "+string(answer))
		pipe.ZAdd(s.t.Context(), key+"dead", redis.Z{Member: dead, Score: float64(1783228800000000 + i)})
	}
	must.Get(pipe.Exec(s.t.Context()))(s.t)
}

// known is the markup of all pages, with texts that are harmless.
func (s *site) known() markup {
	s.t.Helper()
	known := markup{"a rel": true} // to the next page of a long list
	add := func(page seen) {
		has, _, _ := readPage(s.t, page.text)
		for what := range has {
			known[what] = true
		}
	}
	v := s.visitor()
	s.leave(benign(), "k")
	for _, path := range append([]string{"/console/jobs?id=k0", "/console/jobs?id=kdeadk0", "/console/jobs?id=none", "/console/buckets/none", "/console/buckets/letters/dead?q=none", "/console/?did=pause"}, pagePaths...) {
		add(v.get(path))
	}
	add(v.post("/console/buckets/letters/do/pause", "reason", "plain"))
	add(v.get("/console/"))
	add(v.get("/console/audit"))
	v.post("/console/buckets/letters/do/set", "rate", "2/h")
	add(v.get("/console/buckets/letters"))
	v.post("/console/buckets/letters/do/reset")
	add(v.post("/console/buckets/letters/do/resume"))
	return known
}
