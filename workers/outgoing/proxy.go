package outgoing

import (
	"errors"
	"net/url"

	"github.com/tundish-io/tundish/shaper"
)

// parseProxy takes http://user:password@host:port; user and password may be missing. Its errors repeat no part of it,
// because any part may be the password.
func parseProxy(text string) (*url.URL, shaper.Origin, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Opaque != "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, shaper.Origin{}, errors.New("want http://host:port or http://user:password@host:port, percent-encoded where needed")
	}
	origin, err := shaper.OriginOf(u)
	if err != nil {
		return nil, shaper.Origin{}, err
	}
	return &url.URL{Scheme: u.Scheme, User: u.User, Host: origin.Address()}, origin, nil
}
