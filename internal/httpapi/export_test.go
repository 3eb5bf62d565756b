package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/apikey"
)

// What the tests of the contract compare with openapi.yaml.

// ProducerRoutes and OpsRoutes are "METHOD path: roles" of all routes.
func ProducerRoutes() []string {
	p := &producer{jobs: struct{ Jobs }{}}
	return names(slices.Concat(p.routes(), p.limitOps().routes(), p.oneJob().routes(), p.bundles().routes(), (&probes{log: orDiscard(nil)}).routes()))
}

func OpsRoutes() []string {
	o := &ops{}
	return names(slices.Concat(o.routes(), o.limits.routes(), o.oneJob().routes(), o.bundles().routes(), (&probes{log: orDiscard(nil)}).routes(), (&sink{}).routes()))
}

func names(routes []route) []string {
	var list []string
	for _, r := range routes {
		path := strings.ReplaceAll(r.path, "...}", "}")
		roles := fmt.Sprint(r.needs.roles)
		if r.method == "" { // any: two stand for all
			list = append(list, "GET "+path+": "+roles, "POST "+path+": "+roles)
			continue
		}
		list = append(list, r.method+" "+path+": "+roles)
	}
	return list
}

// Codes are the codes of all problems.
func Codes() []string {
	var list []string
	for c := range kinds {
		list = append(list, string(c))
	}
	return list
}

var (
	DecodeJob   = decodeJob
	DecodePatch = decodePatch
	WriteJSON   = writeJSON
	SplitBatch  = splitBatch
	Pieces      = pieces
)

// TraceContextOf reads the Trace Context of a request.
func TraceContextOf(h http.Header) (parent, state string) {
	t := traceContextOf(h)
	return t.parent, t.state
}

// FewLists bounds the lists of each caller.
func FewLists() func(http.HandlerFunc) http.HandlerFunc { return newLists().few }

// ServeOperation serves one operation, which do carries out.
func ServeOperation[In, Out any](op *Operation[In, Out], do func(*http.Request, *In) (Out, error)) http.Handler {
	a := newAccess(nil, httplimit.Proxies{}, slog.New(slog.DiscardHandler), nil, nil)
	fault := func(_ *http.Request, err error) *fault { return newFault(codeInternal, "%v", err) }
	return newHandler([]route{bind(fault, op, do)}, nil, a, newBounds("", 0, 0, a.address), newDraining(), orDiscard(nil))
}

// As is a request of the caller of a key.
func As(r *http.Request, key *apikey.Key) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), keyContext{}, key))
}

// ClientWait is how long the client of a proxy waits, by its headers.
var ClientWait = clientWait
