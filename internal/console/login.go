package console

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/session"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper/audit"
)

// cookieName names the cookie of a session. It has no path, so it is sent to the directory of the page that set it, also where a proxy has the console
// below a prefix.
const cookieName = "tundish_session"

// visited serves a page to a logged-in visitor, and redirects other visitors to the login.
func (c *console) visited(serve func(v *visit)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &visit{console: c, w: w, r: r, visitor: httpapi.Visitor{Address: c.address(r)}}
		err := v.identify()
		_, isRefused := errors.AsType[*apiError](err)
		switch {
		case err == nil:
			serve(v)
		case errors.Is(err, session.ErrNone):
			v.askForLogin()
		case isRefused:
			v.fail(err)
		default:
			v.fail(&apiError{Status: http.StatusServiceUnavailable, Detail: "Redis is not reachable or too slow: the pages come back as soon as it does"})
		}
	}
}

// askForLogin sends a visitor to the login, and from there back to the page.
func (v *visit) askForLogin() {
	if v.r.Method != http.MethodGet || strings.HasSuffix(v.r.URL.Path, "/stream") {
		v.fail(&apiError{Status: http.StatusUnauthorized, Detail: "the login has ended: log in, and do it again"})
		return
	}
	page := strings.TrimPrefix(v.r.URL.Path, Path)
	if v.r.URL.RawQuery != "" {
		page += "?" + v.r.URL.RawQuery
	}
	v.redirect(v.root() + "login?" + query("next", page))
}

// needsNoLogin responds to visitors that a trusted proxy has logged in already.
func (v *visit) needsNoLogin() bool {
	user, err := v.user(v.r)
	switch {
	case err != nil:
		v.fail(err)
	case user != "":
		v.redirect(v.root() + safePage(v.r.FormValue("next")))
	default:
		return false
	}
	return true
}

// loginPage asks for a key.
func (c *console) loginPage(w http.ResponseWriter, r *http.Request) {
	v := &visit{console: c, w: w, r: r}
	if !v.needsNoLogin() {
		v.render(http.StatusOK, "login", "Log in", r.URL.Query().Get("next"))
	}
}

// login begins a session of the key that was given.
func (c *console) login(w http.ResponseWriter, r *http.Request) {
	const most = 4 << 10
	r.Body = http.MaxBytesReader(w, r.Body, most)
	v := &visit{console: c, w: w, r: r}
	if v.needsNoLogin() {
		return
	}
	address, now := c.address(r), time.Now()
	secret := strings.TrimSpace(r.PostFormValue("key"))
	key := c.host.Keys().Find(secret)
	if key == nil {
		if wait, may := c.attempts.mayTry(address, now); !may {
			v.tooMany("too many keys were wrong", wait)
			return
		}
		c.attempts.fail(address, now)
		c.host.WrongKey(address)
		v.fail(&apiError{Status: http.StatusUnauthorized, Detail: "this server does not know the key: `producer key new` makes one, for [[keys]] in the configuration"})
		return
	}
	if wait, may := c.logins.mayLogIn(key.Name, now); !may {
		v.tooMany("this key has logged in too often", wait)
		return
	}
	begun, err := c.sessions.Begin(r.Context(), key, secret, address)
	if err != nil {
		v.fail(&apiError{Status: http.StatusServiceUnavailable, Detail: "Redis is not reachable or too slow: try again"})
		return
	}
	c.record(r.Context(), "key "+key.Name, address, w.Header().Get("X-Request-Id"))
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // programs of this machine have no TLS
		Name: cookieName, Value: begun, MaxAge: int(session.Life.Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" || strings.HasPrefix(c.cfg.Origin, "https:"),
	})
	v.redirect(v.root() + safePage(r.PostFormValue("next")))
}

// tooMany refuses a login for a time.
func (v *visit) tooMany(why string, wait time.Duration) {
	seconds := int(math.Ceil(wait.Seconds()))
	v.w.Header().Set("Retry-After", strconv.Itoa(seconds))
	v.fail(&apiError{Status: http.StatusTooManyRequests, Detail: fmt.Sprintf("%s: try again in %d s", why, seconds)})
}

// record records a login. A login changes nothing, so an error does not stop it.
func (c *console) record(ctx context.Context, author, address, request string) {
	if c.cfg.Audit == nil {
		return
	}
	record := &audit.Record{Author: author, Address: address, Process: redisconn.ProcessName(), Request: request, Operation: "login"}
	logins := c.cfg.Audit.Logins()
	err := logins.Begin(ctx, record)
	if record.Outcome = audit.Done; err == nil {
		err = logins.End(ctx, record)
	}
	if err != nil {
		c.cfg.Logger.WarnContext(ctx, "the audit does not have this login", "author", author, "error", err)
	}
}

// nextPages are the pages to which a login may lead.
var nextPages = func() *http.ServeMux {
	mux := http.NewServeMux()
	for _, route := range forVisitors {
		if strings.HasPrefix(route.pattern, "GET ") && !strings.HasSuffix(route.pattern, "/stream") {
			mux.Handle(route.pattern, http.NotFoundHandler())
		}
	}
	return mux
}()

// safePage returns the page of the console that a text names, "" of any other text. It is made again from the parts of the text, so that no browser
// reads another address in it than this function.
func safePage(text string) string {
	path, query, _ := strings.Cut(text, "?")
	parts := strings.Split(path, "/")
	for i, part := range parts {
		name, err := url.PathUnescape(part)
		if err != nil || name == "." || name == ".." || name == "" && len(parts) > 1 {
			return "" // a browser, and a mux, would read another path
		}
		parts[i] = url.PathEscape(name)
	}
	page := strings.Join(parts, "/")
	values, err := url.ParseQuery(query)
	at, parseErr := url.Parse(Path + page)
	if err != nil || parseErr != nil {
		return ""
	}
	if _, pattern := nextPages.Handler(&http.Request{Method: http.MethodGet, URL: at}); pattern == "" {
		return ""
	}
	if len(values) > 0 {
		page += "?" + values.Encode()
	}
	return page
}

// logout ends the session.
func logout(v *visit) {
	if v.session != "" {
		if err := v.sessions.End(v.r.Context(), v.session); err != nil {
			v.fail(&apiError{Status: http.StatusServiceUnavailable, Detail: "Redis is not reachable or too slow: the login goes on; try again"})
			return
		}
	}
	http.SetCookie(v.w, &http.Cookie{Name: cookieName, MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteLaxMode}) //nolint:gosec // it takes the session away
	v.redirect("login")
}
