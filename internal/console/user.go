package console

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/session"
)

// maxUser bounds the name of a user, in characters.
const maxUser = 200

// user returns the user that a trusted proxy names in a request. It is "" if the proxy names no user, or no trusted proxy sent the request. A header
// that may have come from the client, or that no page could show, is an [*apiError]: the proxy is at fault, and a guess could give rights to the wrong
// user.
func (c *console) user(r *http.Request) (string, error) {
	if c.cfg.UserHeader == "" || !c.cfg.Proxies.Trusts(httplimit.Peer(r)) {
		return "", nil
	}
	values := r.Header.Values(c.cfg.UserHeader)
	if len(values) == 0 {
		return "", nil
	}
	fault, user := "", values[0]
	switch {
	case len(values) > 1:
		fault = fmt.Sprintf("has it in %d lines: the proxy has to replace what its client sends", len(values))
	case strings.TrimSpace(user) == "":
		fault = "is empty: the proxy has to leave it out for users that it does not know"
	case !utf8.ValidString(user) || strings.ContainsFunc(user, func(r rune) bool { return !unicode.IsPrint(r) }):
		fault = "has characters that cannot be printed"
	case utf8.RuneCountInString(user) > maxUser:
		fault = fmt.Sprintf("has more than %d characters", maxUser)
	default:
		return user, nil
	}
	return "", &apiError{Status: http.StatusBadRequest, Detail: fmt.Sprintf("the request names no user: its header %s %s", http.CanonicalHeaderKey(c.cfg.UserHeader), fault)}
}

// address returns the address of the client of a request, also behind trusted proxies.
func (c *console) address(r *http.Request) string {
	return c.cfg.Proxies.Name(c.cfg.Proxies.ClientAddr(r))
}

// identify finds the visitor: the user that a trusted proxy names, otherwise the holder of the key of a session. Without keys, every client that the
// server accepts has all rights.
func (v *visit) identify() error {
	ring := v.host.Keys()
	user, err := v.user(v.r)
	if err != nil {
		return err
	}
	if user != "" {
		if v.visitor.Key = ring.Named(v.cfg.UserKey); v.visitor.Key == nil {
			return &apiError{Status: http.StatusForbidden, Detail: fmt.Sprintf("console.user_key is %q, and [[keys]] has no key of this name any more: "+
				"restart the dispatcher with another one", v.cfg.UserKey)}
		}
		v.visitor.User = user
		return nil
	}
	if len(ring) == 0 {
		return nil
	}
	cookie, err := v.r.Cookie(cookieName)
	if err != nil {
		return session.ErrNone
	}
	v.session = cookie.Value
	v.visitor.Key, err = v.sessions.Find(v.r.Context(), ring, v.session)
	return err
}
