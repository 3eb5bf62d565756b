package console

import (
	"bytes"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/shellword"
)

//go:embed templates/*.html
var templates embed.FS

// pages are the templates of all pages, each with the layout.
var pages = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	for _, name := range []string{
		"login", "error", "overview", "bucket", "dead", "deadall", "purge", "jobs", "joblist", "timetable", "flows", "flow", "groups", "schedules", "pools", "limits", "fleet", "audit", "sessions",
	} {
		all[name] = template.Must(template.New("layout.html").Funcs(functions).ParseFS(templates, "templates/layout.html", "templates/times.html", "templates/"+name+".html"))
	}
	return all
}()

// functions are the functions of the templates.
var functions = template.FuncMap{
	"spark":  spark,
	"bars":   bars,
	"ages":   ages,
	"future": func(t *time.Time) bool { return t != nil && time.Until(*t) > 0 },
	"relative": func(t time.Time) string {
		d := time.Until(t)
		if d < 0 {
			return opsview.Human(-d) + " ago"
		}
		return "in " + opsview.Human(d)
	},
	"utc":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"rfc3339": func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z07:00") },
	"seconds": func(s float64) string { return opsview.Human(time.Duration(s * float64(time.Second))) },
	"rate":    func(r float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", r), ".0") },
	"path":    url.PathEscape,
	"shell":   shellword.Quote,
	"own":     ownSettings,
	"shown":   shownName,
	"deref":   deref,
	"counted": counted,
	"payload": payloadText,
	"command": shellword.Join,
	"sorts":   func() map[string]string { return orders },
}

// orders are the orders of buckets, and how people call them.
var orders = map[string]string{
	"": "problems", "name": "name", "waiting": "most waiting", "in_flight": "most in flight", "dead": "most dead letters", "oldest": "oldest job",
}

// maxPayload is how many bytes of a payload a page shows.
const maxPayload = 64 << 10

// payloadText returns the payload of a job for people: its text, or a dump of its bytes if it is no text. It cuts a long one.
func payloadText(job *opsview.Job) string {
	payload := []byte(job.Payload)
	if payload == nil {
		payload = job.PayloadBytes
	}
	shown := payload
	if len(payload) > maxPayload {
		shown = wholeRunes(payload[:maxPayload])
	}
	text := string(shown)
	if !utf8.ValidString(text) {
		shown = payload[:min(len(payload), maxPayload/hexWidth)]
		text = hex.Dump(shown)
	}
	if len(shown) < len(payload) {
		text += fmt.Sprintf("\n… %d bytes in all: dispatcher job show %s %s", len(payload), job.Bucket, job.ID)
	}
	return text
}

// wholeRunes returns a text that was cut, without a partial character at its end.
func wholeRunes(cut []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(cut); n++ {
		if end := cut[len(cut)-n:]; utf8.RuneStart(end[0]) {
			if !utf8.FullRune(end) {
				return cut[:len(cut)-n]
			}
			break
		}
	}
	return cut
}

// hexWidth is about how many characters a dump has for each byte.
const hexWidth = 5

// counted is a number of things, of the types that pages have.
func counted(n any, thing string) string {
	switch n := n.(type) {
	case int:
		return opsview.Count(n, thing)
	case int64:
		return opsview.Count(n, thing)
	case *int64:
		return opsview.Count(*n, thing)
	}
	return fmt.Sprint(n) + " " + thing
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// layout is the common part of every page.
type layout struct {
	Title, Name, Version string
	Colour               string // of the mark next to the name
	Root                 string // the way from the page to the first one: "" or "../"
	Visitor              string // the name of its key; "" there are none
	User                 string // the user that a proxy authenticated; "": the visitor has logged in
	MayOperate, MayAdmin bool
	PayloadsHidden       bool
	Bare                 bool   // it has no links: the visitor has not logged in yet
	Said                 string // the result of the last action
	Now                  time.Time
	Content              any
}

// root returns the relative path from the page to the first one. A proxy may have the console below any prefix, so no page names its whole path.
func (v *visit) root() string {
	return strings.Repeat("../", strings.Count(strings.TrimPrefix(v.r.URL.EscapedPath(), Path), "/"))
}

// render writes a page.
func (v *visit) render(status int, page, title string, content any) {
	l := layout{
		Title: title, Name: v.cfg.Name, Colour: v.cfg.Colour, User: v.visitor.User, PayloadsHidden: v.hidesPayloads(), Version: v.cfg.Version, Root: v.root(), Bare: page == "login", Now: time.Now(), Content: content,
		MayOperate: v.may(apikey.RoleOperate), MayAdmin: v.may(), Said: said[v.r.URL.Query().Get("did")],
	}
	if v.visitor.Key != nil {
		l.Visitor = v.visitor.Key.Name
	}
	var text bytes.Buffer
	if err := pages[page].Execute(&text, &l); err != nil {
		v.cfg.Logger.ErrorContext(v.r.Context(), "a page of the console could not be made", "page", page, "error", err)
		http.Error(v.w, "this page could not be made: the log says why", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(text.Bytes()) // a visitor that has disconnected needs no page
}

// fail shows why there is no page.
func (v *visit) fail(err error) {
	problem, isOne := errors.AsType[*apiError](err)
	if !isOne {
		problem = &apiError{Status: http.StatusInternalServerError, Detail: err.Error()}
	}
	v.render(problem.Status, "error", "No page", problem)
}

// redirect sends the visitor to another page, named from this one.
func (v *visit) redirect(page string) {
	v.w.Header().Set("Location", location(page))
	v.w.WriteHeader(http.StatusSeeOther)
}

// location returns the address of a page relative to the requested page. The overview has no name, and an address without a path is the requested page.
func location(page string) string {
	if page == "" || page[0] == '?' {
		return "./" + page
	}
	return page
}

// acted ends an action: it shows the error, or redirects the visitor to a page that shows the result. changed reports whether anything changed.
func (v *visit) acted(page, action string, err error, changed func() bool) {
	if err != nil {
		v.fail(err)
		return
	}
	if !changed() {
		action = "nothing"
	}
	separator := "?"
	if strings.Contains(page, "?") {
		separator = "&"
	}
	v.redirect(page + separator + query("did", action))
}

// isChange reports whether a response means that something has changed; a response without the field has.
func isChange(changed *bool) bool { return changed == nil || *changed }

// said are the results of actions, by name.
var said = map[string]string{
	"pause": "It is paused.", "resume": "It runs again.", "release": "Holds and open breakers are ended.", "set": "The rate is changed, until it is reset.",
	"reset": "The configured settings apply again.", "drain": "It leaks now.", "stop-drain": "The drain is stopped.", "redrive": "Dead letters were put back.", "retry": "Jobs that waited for another attempt are due now.",
	"drop": "Dead letters were dropped.", "purge": "The waiting jobs are dropped.", "fire": "It fires now.", "end-session": "The session is ended.", "nothing": "There was nothing to change.",
}

func query(name, value string) string { return url.Values{name: {value}}.Encode() }

// isHidden reports whether a character cannot be seen, or turns text around.
func isHidden(r rune) bool { return !unicode.IsPrint(r) }

// shownName returns a name as a page shows it. It is in quotes and escaped if it has hidden characters, or begins or ends with spaces.
func shownName(name string) string {
	if name != "" && (strings.TrimSpace(name) != name || strings.ContainsFunc(name, isHidden)) {
		return strconv.Quote(name)
	}
	return name
}

// timeOf reads a time of a filter, as the command line does.
func timeOf(name, text string) (time.Time, error) {
	at, err := opsview.Instant(text, time.Now())
	if err != nil {
		return at, &apiError{Status: http.StatusBadRequest, Detail: name + ": " + err.Error()}
	}
	return at, nil
}

// absolute formats a time for the steps of a change: "2h" would match other dead letters in each of them.
func absolute(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
