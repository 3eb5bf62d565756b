package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/tundish-io/tundish/admission/httplimit"
)

// guard is what a request passes before its route is looked for.
//
// With keys it refuses what a web page of another origin sends; a question for
// a gateway (isCheck) is let through, as it has the headers of the gateway's
// client, and a key that no web page has. Who may do what is for
// [access.allow] to say, at the route.
//
// Without keys, being here is all that a caller can show, and guard lets in
// only what a program of this machine sends to this machine. A check spends with
// any method: [access.allow] refuses a GET of another origin there too.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why, keyless := "", len(a.ring()) == 0
		if keyless {
			why = a.notLocal(r)
		}
		if why == "" && a.foreign(r, r.Method) && (keyless || !isCheck(r)) {
			why = otherOrigin
		}
		if why != "" {
			a.refuse(why).write(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

const otherOrigin = "it comes from a web page of another origin"

// foreign reports whether a web page of another origin sent the request, judged
// as if its method were this one: GET, HEAD and OPTIONS are always allowed.
func (a *access) foreign(r *http.Request, method string) bool {
	as := *r
	as.Method = method
	return a.origins.Check(&as) != nil
}

func (a *access) refuse(why string) *fault {
	if len(a.ring()) > 0 {
		return newFault(codeForbidden, "the request is refused because %s", why)
	}
	return newFault(codeForbidden, "this server has no API keys and serves only programs of its own machine; the request is refused because %s", why)
}

// notLocal says why a request is not one of a program of this machine, or "".
// A proxy would lend that to anybody, unless the configuration trusts it;
// another host name is how a web page gets past the same-origin rule (DNS
// rebinding).
func (a *access) notLocal(r *http.Request) string {
	peer := httplimit.Peer(r)
	header := forwardingHeader(r.Header)
	switch {
	case !peer.IsLoopback():
		return "the caller is on another machine"
	case header != "" && !a.proxies.Trusts(peer):
		return "it came through a proxy that is not trusted: it has the header " + header
	case !isLoopbackHost(r.Host):
		return "it is for another host name than localhost, 127.0.0.1 or [::1]"
	}
	return ""
}

func forwardingHeader(h http.Header) string {
	for name := range h {
		switch {
		case name == "Forwarded", name == "Via", name == "X-Real-Ip", strings.HasPrefix(name, "X-Forwarded-"):
			return name
		}
	}
	return ""
}

func isLoopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	} else if inner, ok := strings.CutPrefix(hostport, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
