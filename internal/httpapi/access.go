package httpapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
)

// access checks the API key of a request and its rights.
type access struct {
	keys     atomic.Pointer[apikey.Ring] // empty: programs of this machine may do everything
	proxies  httplimit.Proxies
	origins  *http.CrossOriginProtection
	pages    *Pages // nil: there are none
	lasting  lasting
	refusals keyRefusals

	currentName func(bucket string) string // of a bucket that a request may name by its first name; nil: no path has a bucket
}

func newAccess(keys []apikey.Key, proxies httplimit.Proxies, log *slog.Logger, wrong prometheus.Counter, forbidden *prometheus.CounterVec) *access {
	a := &access{proxies: proxies, origins: http.NewCrossOriginProtection(), refusals: newKeyRefusals(log, wrong, forbidden)}
	a.setKeys(keys)
	return a
}

func (a *access) setKeys(keys []apikey.Key) {
	ring := apikey.NewRing(keys)
	a.keys.Store(&ring)
	a.endRevoked()
}

func (a *access) ring() apikey.Ring { return *a.keys.Load() }

// rights are the roles of a key that a route needs. The zero value is open to every request that guard accepts.
type rights struct {
	roles      []apikey.Role // one of these, or RoleAdmin
	allBuckets bool          // and be for all buckets
	local      bool          // no key, but be a program of this machine
	clientKey  bool          // the key is in the header where an API client sends its own
	anyBucket  bool          // the handler finds out which bucket it is, and whether the key may use that
}

func roles(any ...apikey.Role) rights { return rights{roles: any} }

func (n rights) String() string {
	names := []string{}
	for _, role := range n.roles {
		names = append(names, string(role))
	}
	if !slices.Contains(n.roles, apikey.RoleAdmin) {
		names = append(names, string(apikey.RoleAdmin))
	}
	return strings.Join(names, " or ")
}

type keyContext struct{}

// keyOf returns the key of the caller, nil if the server has no keys or the route needs none.
func keyOf(r *http.Request) *apikey.Key {
	key, _ := r.Context().Value(keyContext{}).(*apikey.Key)
	return key
}

func keyName(r *http.Request) string {
	if key := keyOf(r); key != nil {
		return key.Name
	}
	return ""
}

type accessContext struct{}

// noteForbidden counts a fault that is the lack of a right of the request's key. A batch counts once.
func noteForbidden(r *http.Request, f *fault) {
	a, _ := r.Context().Value(accessContext{}).(*access)
	if key := keyOf(r); f.Code == codeForbidden && a != nil && key != nil {
		a.refusals.noteForbidden(key.Name, a.address(r), r.Method+" "+r.URL.Path, f.Detail)
	}
}

// callersOf are the callers of API keys by their marks.
func callersOf(keys []apikey.Key) *map[string]string {
	names := make(map[string]string, len(keys))
	for i := range keys {
		owner := keys[i].Owner()
		names[shaper.CallerMark(owner)] = owner
	}
	return &names
}

// authenticate finds the key that the request shows.
func authenticate(ring apikey.Ring, w http.ResponseWriter, r *http.Request) (*apikey.Key, *fault) {
	const how = "send one as \"Authorization: Bearer <key>\""
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return nil, newFault(codeUnauthorized, "the request has no API key: %s", how)
	}
	scheme, secret, _ := strings.Cut(values[0], " ")
	if len(values) == 1 && strings.EqualFold(scheme, "Bearer") {
		if key := ring.Find(strings.TrimSpace(secret)); key != nil {
			return key, nil
		}
	}
	w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	return nil, newFault(codeUnauthorized, "this server does not know the API key: %s, or add it to [[keys]]", how)
}

// keyHeaders are the headers that API clients use for their key.
var keyHeaders = []string{"Tundish-Key", "Authorization", "X-Api-Key", "Api-Key"}

// authenticateClient returns the key of a proxy client. It reads the key from Tundish-Key, or from any header in which an unchanged API client sends the
// key that it was given.
func authenticateClient(ring apikey.Ring, w http.ResponseWriter, r *http.Request) (*apikey.Key, *fault) {
	for _, name := range keyHeaders {
		for _, value := range r.Header.Values(name) {
			if key := keyIn(ring, value); key != nil {
				return key, nil
			}
		}
	}
	for _, values := range r.Header {
		for _, value := range values {
			if key := keyIn(ring, value); key != nil {
				return key, nil
			}
		}
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	return nil, newFault(codeUnauthorized, "the request has no API key that this server knows: "+
		"send one as Tundish-Key, or give the client one instead of the API's (in Authorization, x-api-key or any other header)")
}

// keyIn returns the key of this server in the value of a header: alone, after a scheme, or as the user or the password of Basic.
func keyIn(ring apikey.Ring, value string) *apikey.Key {
	if len(ring) == 0 {
		return nil
	}
	for _, secret := range secretsIn(value) {
		if key := ring.Find(secret); key != nil {
			return key
		}
	}
	return nil
}

// maxKey bounds the length of a possible key in bytes: longer values are no keys, and are not hashed.
const maxKey = 1024

// secretsIn returns the possible keys in the value of a header.
func secretsIn(value string) []string {
	value = strings.TrimSpace(value)
	if value == "" || len(value) > maxKey {
		return nil
	}
	scheme, rest, hasScheme := strings.Cut(value, " ")
	if !hasScheme {
		return []string{value}
	}
	rest = strings.TrimSpace(rest)
	if !strings.EqualFold(scheme, "basic") {
		token, _ := strings.CutPrefix(rest, "token=") // Authorization: Token token="…"
		return []string{rest, strings.Trim(token, `"`)}
	}
	decoded, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return nil
	}
	user, password, _ := strings.Cut(string(decoded), ":")
	return []string{password, user}
}

// authorize returns the right that a key lacks. It refuses a bucket outside the key's buckets
// whether the bucket exists or not.
func authorize(key *apikey.Key, needs rights, bucket string) *fault {
	missing := ""
	switch {
	case !key.Has(needs.roles):
		missing = "the role " + needs.String()
	case bucket != "" && !key.MayUse(bucket):
		missing = fmt.Sprintf("bucket %q among its buckets", bucket)
	case needs.allBuckets && !key.MayUse(apikey.AllBuckets):
		missing = "all buckets (\"" + apikey.AllBuckets + "\"): this changes every bucket that names it"
	default:
		return nil
	}
	return newFault(codeForbidden, "key %q lacks %s", key.Name, missing)
}

// bound returns a 403 fault if the caller's key may not enqueue into the job's flow or group. [producer.decode] reports invalid names.
func bound(r *http.Request, bucket *shaper.Bucket, job *shaper.Job) *fault {
	key := keyOf(r)
	if key == nil || !key.IsBound() {
		return nil
	}
	flow, err := bucket.Flow.NameOf(job)
	group, groupErr := bucket.Group.NameOf(job)
	if err != nil || groupErr != nil || key.MayEnqueue(bucket, group, flow) {
		return nil //nolint:nilerr // see above
	}
	if bucket.Group != nil {
		return newFault(codeForbidden, "key %q may not enqueue into flow %q of group %q: it is bound to others", key.Name, flow, group)
	}
	return newFault(codeForbidden, "key %q may not enqueue into flow %q: it is bound to others", key.Name, flow)
}

// address names the address of a request's client, or the network that counts as one.
func (a *access) address(r *http.Request) string { return a.proxies.Name(a.proxies.ClientAddr(r)) }

// identity returns the caller of a request: by its key, otherwise by its address. names selects the headers by which limits count; nil selects all.
func (a *access) identity(r *http.Request, names []string) admission.Identity {
	id := admission.Identity{IP: a.address(r)}
	id.Caller = admission.AddrCaller(id.IP)
	if key := keyOf(r); key != nil {
		id.Caller, id.Tier = admission.KeyCaller(key.Owner()), key.Tier
	}
	h := r.Header
	if names != nil {
		h = make(http.Header, len(names))
		for _, name := range names {
			if values := r.Header.Values(name); len(values) > 0 {
				h[name] = values
			}
		}
	}
	id.Headers = httplimit.RequestHeaders(h)
	return id
}

// errRevoked is the cause for which the context of a lasting request ends.
var errRevoked = errors.New("the key of the request is not known any more, or has fewer rights")

// lasting holds the long requests under way: streams and waits. Each ends when its key is removed from the configuration or loses a right. It is safe
// for concurrent use.
type lasting struct {
	mu   sync.Mutex
	live map[*lastingRequest]struct{}
}

type lastingRequest struct {
	key *apikey.Key
	end context.CancelCauseFunc
}

// lasts returns the request with a context that ends with the rights of its key, and a function that its handler calls at its end.
func (a *access) lasts(r *http.Request) (*http.Request, func()) {
	ctx, end := context.WithCancelCause(r.Context())
	one := &lastingRequest{keyOf(r), end}
	l := &a.lasting
	l.mu.Lock()
	if l.live == nil {
		l.live = map[*lastingRequest]struct{}{}
	}
	l.live[one] = struct{}{}
	l.mu.Unlock()
	a.endRevoked() // the keys may have changed since the request was authorized
	return r.WithContext(ctx), func() {
		l.mu.Lock()
		delete(l.live, one)
		l.mu.Unlock()
		end(nil)
	}
}

// endRevoked ends the requests whose keys do not grant them any more.
func (a *access) endRevoked() {
	ring := a.ring()
	a.lasting.mu.Lock()
	defer a.lasting.mu.Unlock()
	for one := range a.lasting.live {
		if one.key == nil && len(ring) > 0 || one.key != nil && !ring.Grants(one.key) {
			one.end(errRevoked)
		}
	}
}

// isRevoked reports whether a lasting request has ended with the rights of its key.
func isRevoked(r *http.Request) bool { return errors.Is(context.Cause(r.Context()), errRevoked) }
