package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/tundish-io/tundish/admission/httplimit"
)

const otherOrigin = "it comes from a web page of another origin"

// foreign reports whether a web page of another origin sent the request, judged
// as if its method were this one: GET, HEAD and OPTIONS are always allowed.
func (a *access) foreign(r *http.Request, method string) bool {
	as := *r
	as.Method = method
	origins := a.origins
	if a.pages != nil && a.pages.Origins != nil && strings.HasPrefix(r.URL.Path, a.pages.Path) {
		origins = a.pages.Origins
	}
	return origins.Check(&as) != nil
}

func (a *access) refuse(why string) *fault {
	if len(a.ring()) > 0 {
		return newFault(codeForbidden, "the request is refused because %s", why)
	}
	return newFault(codeForbidden, "this server has no API keys and serves only programs of its own machine; the request is refused because %s", why)
}

// notLocal returns why a request is not from a program of this machine, or "". A request through a proxy may come from anywhere: it counts as local only
// if the configuration trusts the proxy. A request for another host name is not local: a web page can bypass the same-origin rule by such a name (DNS
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
