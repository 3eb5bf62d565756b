package httpapi

import (
	"context"
	"net/http"

	"github.com/tundish-io/tundish/internal/apikey"
)

// Pages are pages for people, such as the console, that a server of the operator's API has below a path. They call the API in this process with the
// visitor's key, which decides every right.
type Pages struct {
	Path  string // "/console/"
	Serve func(host PagesHost) http.Handler

	// Origins decides which requests for the pages come from web pages of another origin; nil: as for the API.
	Origins *http.CrossOriginProtection
}

// PagesHost is the part of a server that its pages use.
type PagesHost struct {
	// API serves requests in this process. Their context is one of [AsVisitor]; a server without keys needs none.
	API http.RoundTripper

	// Keys returns the current keys of the server; without keys, programs of this machine may do everything, and no others reach the pages.
	Keys func() apikey.Ring

	// WrongKey counts an unknown key from an address.
	WrongKey func(address string)
}

// Visitor is the user or key that opens a page.
type Visitor struct {
	Key     *apikey.Key // the key that it has shown, or whose rights User has; nil if the server has none
	User    string      // the user that a trusted proxy authenticated, "" without one
	Address string
}

type visitorKey struct{}

// AsVisitor returns a context for requests to the API in this process on behalf of a visitor.
func AsVisitor(ctx context.Context, v Visitor) context.Context {
	return context.WithValue(ctx, visitorKey{}, v)
}

// visitor is on whose behalf a request in this process is, none of others.
func visitor(r *http.Request) Visitor {
	v, _ := r.Context().Value(visitorKey{}).(Visitor)
	return v
}

// routes returns the routes of the pages. Every client that passes the guard may request them.
func (p *Pages) routes(a *access) (routes []route, bind func(h *Handler)) {
	if p == nil {
		return nil, func(*Handler) {}
	}
	api := &Local{}
	a.pages = p
	pages := p.Serve(PagesHost{API: api, Keys: a.ring, WrongKey: a.refusals.noteWrong})
	return []route{{path: p.Path, serve: pages.ServeHTTP}}, func(h *Handler) { api.handler = h.Handler }
}
