package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/shaper"
)

// Limits are the methods of [*admission.Limiter] that the API calls.
type Limits interface {
	Ask(ctx context.Context, name string, id admission.Identity, n int64) (admission.Decision, error)
	AskKey(ctx context.Context, name, tier, key string, n int64) (admission.Decision, error)
	Limits(ctx context.Context) ([]admission.LimitInfo, error)
	Override(ctx context.Context, name string, p admission.Patch) (admission.Limit, error)
	ResetOverride(ctx context.Context, name string) (admission.Limit, error)
}

// Headers by which a gateway asks for a check. It must not pass on its clients' headers of these names. An empty header counts as missing: some gateways
// can set a header to nothing, but not remove it.
const (
	headerKey  = "X-Tundish-Key"
	headerCost = "X-Tundish-Cost"
	headerTier = "X-Tundish-Tier"
	headerDeny = "X-Tundish-Deny"
)

const maxCheckBytes = 64 << 10

// decisionView is the view of a decision that allows a request.
type decisionView struct {
	Limit       string           `json:"limit"`
	Allowed     bool             `json:"allowed"`
	WouldRefuse bool             `json:"would_refuse,omitempty"` // in shadow mode
	Source      admission.Source `json:"source,omitempty"`       // the decider, if it was not Redis
	Overflow    bool             `json:"overflow,omitempty"`     // counted with all others above max_keys
	Quota       int64            `json:"quota"`
	Window      float64          `json:"window_seconds"`
	Remaining   int64            `json:"remaining"`
	RetryAfter  float64          `json:"retry_after_seconds,omitempty"` // until it would not be refused any more
	ResetAfter  float64          `json:"reset_after_seconds"`
}

// checkLimit checks a standalone limit: any method, /v1/limits/{limit}/check. Key, cost and tier are each read from the JSON body, otherwise from the
// headers, otherwise from the query. The status of a refusal comes from the query alone: the query is in the path that the gateway is configured with,
// and its client cannot change it.
func (p *producer) checkLimit(w http.ResponseWriter, r *http.Request) {
	var q question
	query := r.URL.Query()
	q.values(func(name string) []string { return query[name] }, "key", "cost", "tier", "deny")
	q.values(headersOf(r.Header), headerKey, headerCost, headerTier)
	if f := q.body(w, r); f != nil {
		f.write(w, r)
		return
	}
	p.answerCheck(w, r, &q)
}

// checkForGateway is checkLimit for a gateway that appends the path and the query of its client's
// request, and may send its body: any method, /v1/limits/{limit}/check/.... It reads only the
// headers: the client must not choose the key by its path, query or body.
func (p *producer) checkForGateway(w http.ResponseWriter, r *http.Request) {
	var q question
	q.values(headersOf(r.Header), headerKey, headerCost, headerTier, headerDeny)
	p.answerCheck(w, r, &q)
}

func (p *producer) answerCheck(w http.ResponseWriter, r *http.Request, q *question) {
	if len(q.faults) > 0 {
		invalid(onePerField(q.faults)).write(w, r)
		return
	}
	d, err := p.ask(r, q)
	if err != nil {
		limitFault(r, p.store, err).write(w, r)
		return
	}
	p.headers.Set(w.Header(), []admission.Decision{d}, time.Now())
	if !d.Allowed {
		f := limited(&d, max(q.cost, 1))
		if q.deny != 0 {
			f.Status = q.deny
		}
		f.write(w, r)
		return
	}
	writeJSON(w, http.StatusOK, &decisionView{
		Limit: d.Limit, Allowed: d.Allowed, WouldRefuse: d.WouldRefuse, Source: d.Source, Overflow: d.Overflow,
		Quota: d.Quota, Window: d.Window.Seconds(), Remaining: d.Remaining,
		RetryAfter: d.RetryAfter.Seconds(), ResetAfter: d.ResetAfter.Seconds(),
	})
}

func (p *producer) ask(r *http.Request, q *question) (admission.Decision, error) {
	name := r.PathValue("limit")
	if p.limits == nil {
		return admission.Decision{}, admission.ErrUnknownLimit
	}
	id := p.access.identity(r, nil)
	if p.access.proxies.ClientAddr(r) != httplimit.Peer(r) {
		// A gateway checks for its client: the gateway's own key and tier are not the client's.
		id.Caller, id.Tier = admission.AddrCaller(id.IP), ""
	}
	if q.tier != "" {
		id.Tier = q.tier
	}
	ctx := r.Context()
	if key := keyOf(r); key != nil {
		ctx = admission.WithNamer(ctx, key.Owner())
	}
	if q.key == nil {
		return p.limits.Ask(ctx, name, id, max(q.cost, 1))
	}
	return p.limits.AskKey(ctx, name, id.Tier, *q.key, max(q.cost, 1))
}

// limited returns the fault of a refusal by a limit.
func limited(d *admission.Decision, cost int64) *fault {
	if d.Impossible {
		f := newFault(codeCostImpossible, "%s", admission.ImpossibleText(cost, *d))
		f.ViolatedPolicies = []string{d.Limit}
		return f
	}
	f := newFault(codeLimitExceeded, "%s", admission.ExceededText(d.Return(), *d))
	f.ViolatedPolicies, f.RetryAfter = []string{d.Limit}, admission.RetrySeconds(d.Return())
	return f
}

// limitFault returns the fault of an error of the limiter.
func limitFault(r *http.Request, store *storeFaults, err error) *fault {
	if missing, ok := errors.AsType[*admission.MissingIdentityError](err); ok {
		return newFault(codeIdentityMissing, "%s", missing)
	}
	if errors.Is(err, admission.ErrUnknownLimit) {
		return newFault(codeUnknownLimit, "limit %q is not configured", r.PathValue("limit"))
	}
	return store.faultOf(r, err)
}

// question is the question of a check. A later source overwrites an earlier
// one.
type question struct {
	key    *string // nil if none is given
	tier   string
	cost   int64 // 0 if none is given
	deny   int   // status of a refusal; 0 for its own
	faults []*shaper.FieldError
}

func (q *question) fail(field, reason string) {
	q.faults = append(q.faults, &shaper.FieldError{Field: field, Reason: reason})
}

// headersOf returns the values of a header that are not empty.
func headersOf(h http.Header) func(name string) []string {
	return func(name string) (values []string) {
		for _, value := range h.Values(name) {
			if value != "" {
				values = append(values, value)
			}
		}
		return values
	}
}

// values reads key, cost, tier and, if the source has it, deny, which it calls
// by names.
func (q *question) values(of func(name string) []string, names ...string) {
	readers := []func(field, text string){func(_, text string) { q.key = &text }, q.readCost, q.readTier, q.readDeny}
	for i, name := range names {
		switch values := of(name); {
		case len(values) > 1:
			q.fail(name, "is given twice")
		case len(values) == 1:
			readers[i](name, values[0])
		}
	}
}

func (q *question) readCost(field, text string) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > admission.MaxCost {
		q.fail(field, "want a whole number from 1 to "+strconv.Itoa(admission.MaxCost))
		return
	}
	q.cost = n
}

func (q *question) readTier(field, text string) {
	if text != "" && !admission.ValidName(text) {
		q.fail(field, "is no name of a tier")
		return
	}
	q.tier = text
}

func (q *question) readDeny(field, text string) {
	switch text {
	case "403":
		q.deny = http.StatusForbidden
	case "429":
		q.deny = http.StatusTooManyRequests
	default:
		q.fail(field, "want 403 or 429")
	}
}

// body reads {"key": "…", "cost": 1, "tier": "…"} if there is a body.
func (q *question) body(w http.ResponseWriter, r *http.Request) *fault {
	if r.ContentLength == 0 {
		return nil
	}
	data, f := readText(w, r, maxCheckBytes, "a check has a key, a cost and a tier")
	if f != nil || len(data) == 0 {
		return f
	}
	if _, f := mediaType(r, typeJSON); f != nil {
		return f
	}
	if err := checkJSON(data); err != nil {
		return invalid(fieldErrors(err))
	}
	var d jobDecoder // for its readers of values
	isObject := eachMember(data, func(name string, value []byte, again bool) bool {
		switch {
		case again:
			d.fail(name, "is given twice")
		case name == "key":
			if text, given := d.text(name, value); given {
				q.key = &text
			}
		case name == "tier":
			if text, given := d.text(name, value); given {
				q.readTier(name, text)
			}
		case name == "cost":
			if !isNull(value) {
				q.readCost(name, string(value))
			}
		default:
			d.fail(name, "is not a field of a check")
		}
		return len(d.errs) < maxFieldFault
	})
	if !isObject {
		return newFault(codeInvalid, "want a JSON object with key, cost and tier")
	}
	q.faults = append(q.faults, fieldErrors(errors.Join(d.errs...))...)
	return nil
}

// isCheck reports whether a request is one to the check of a limit.
func isCheck(r *http.Request) bool {
	_, rest, ok := cutCheck(r)
	return ok && (rest == "" || rest[0] == '/')
}

// cutCheck cuts the path /v1/limits/{limit}/check off the path of r.
func cutCheck(r *http.Request) (limit, rest string, ok bool) {
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/v1/limits/")
	if !ok {
		return "", "", false
	}
	limit, path, _ = strings.Cut(path, "/")
	rest, ok = strings.CutPrefix(path, "check")
	return limit, rest, ok && admission.ValidName(limit)
}

// cutOriginal removes the path and query of the client's request that a gateway has appended to the path of a check. They may be any text, such as "//"
// or "/../", and the routes would redirect such a path.
func cutOriginal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if limit, rest, ok := cutCheck(r); ok && strings.HasPrefix(rest, "/") {
			short := *r
			short.URL = &url.URL{Path: "/v1/limits/" + limit + "/check/"}
			r = &short
		}
		next.ServeHTTP(w, r)
	})
}
