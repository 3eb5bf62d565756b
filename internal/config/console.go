package config

import (
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/tundish-io/tundish/shaper"
)

// Console are the pages for operators.
type Console struct {
	Enabled        bool     `setting:"enabled"`
	Name           string   `setting:"name"`            // of the installation
	Colour         string   `setting:"colour"`          // of a mark next to the name: one of consoleColours
	Payloads       string   `setting:"payloads"`        // show, or hide from keys that only read
	PublicURL      string   `setting:"public_url"`      // the address by which browsers reach the console, if a proxy rewrites Host
	TrustedProxies Networks `setting:"trusted_proxies"` // proxies whose headers name the client's address and its user
	UserHeader     string   `setting:"user_header"`     // the header with the user's name
	UserKey        string   `setting:"user_key"`        // the name of the key whose rights that user has
}

// HidesPayloads reports whether the console hides payloads from keys that only read.
func (c Console) HidesPayloads() bool { return c.Payloads == hidePayloads }

// Origin is the origin of the public URL as browsers name it, "" without one.
func (c Console) Origin() string {
	u, err := url.Parse(c.PublicURL)
	if err != nil || c.PublicURL == "" {
		return ""
	}
	origin, err := shaper.OriginOf(u)
	if err != nil {
		return "" // validate has refused it
	}
	return origin.String()
}

// maxConsoleName bounds the name, in characters.
const maxConsoleName = 40

const (
	showPayloads = "show"
	hidePayloads = "hide"
)

// consoleColours are the colours of the mark next to the name. The style sheet of the console has a class for each.
var consoleColours = []string{"red", "orange", "green", "blue"}

// headersOfClients are headers that clients send themselves: none of them can name the user that a proxy has found.
var headersOfClients = []string{"authorization", "cookie", "forwarded", "host", "origin", "referer", "user-agent", "x-forwarded-for"}

// console checks the table of the console, and that the key of its users exists.
func (l *loader) console(s *settings) {
	c := s.Console
	if utf8.RuneCountInString(c.Name) > maxConsoleName || strings.ContainsFunc(c.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		l.fail(at("console.name"), literal(c.Name), "want at most %d printable characters", maxConsoleName)
	}
	if c.Colour != "" {
		l.oneOf(at("console.colour"), c.Colour, consoleColours...)
		if c.Name == "" {
			l.fail(at("console.colour"), literal(c.Colour), "needs console.name, which is missing: not everybody sees colours")
		}
	}
	l.oneOf(at("console.payloads"), c.Payloads, showPayloads, hidePayloads)
	l.publicURL(c.PublicURL)
	l.consoleUsers(s)
}

// publicURL requires an absolute HTTP URL with a host, and at most a path besides.
func (l *loader) publicURL(text string) {
	p := at("console.public_url")
	if text == "" {
		return
	}
	shown := literal(text)
	if strings.Contains(text, "@") { // it may have a password
		shown = literal(SecretURL(text))
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#") {
		l.fail(p, shown, `want where browsers ask for the console, such as "https://ops.example.com/tundish", without user, query and "#"`)
		return
	}
	if _, err := shaper.OriginOf(u); err != nil {
		l.fail(p, shown, "%v", err)
	}
}

// consoleUsers checks the settings by which a proxy names users: the proxies, the header, and the key whose rights users have.
func (l *loader) consoleUsers(s *settings) {
	c := s.Console
	if len(c.TrustedProxies) > 0 && len(s.Keys) == 0 {
		l.fail(at("console.trusted_proxies"), literal(c.TrustedProxies), "needs [[keys]]: without them no client of a proxy reaches the console")
	}
	if c.UserHeader == "" {
		if c.UserKey != "" {
			l.fail(at("console.user_key"), literal(c.UserKey), "is of the users that console.user_header names, which is missing")
		}
		return
	}
	p := at("console.user_header")
	switch {
	case !httpguts.ValidHeaderFieldName(c.UserHeader):
		l.fail(p, literal(c.UserHeader), `want the name of a header, such as "X-Forwarded-User"`)
	case slices.Contains(headersOfClients, strings.ToLower(c.UserHeader)):
		l.fail(p, literal(c.UserHeader), "is a header that clients send: have the proxy use one of its own")
	case len(c.TrustedProxies) == 0:
		l.fail(p, literal(c.UserHeader), "needs console.trusted_proxies: without them every client could name any user")
	}
	names := make([]string, len(s.Keys))
	for i, key := range s.Keys {
		names[i] = key.Name
	}
	switch {
	case c.UserKey == "":
		l.fail(at("console.user_key"), `""`, "is missing: want the name of the key of [[keys]] whose rights the users of console.user_header have")
	case !slices.Contains(names, c.UserKey):
		l.fail(at("console.user_key"), literal(c.UserKey), "no [[keys]] has this name%s", DidYouMean(c.UserKey, names))
	}
}
