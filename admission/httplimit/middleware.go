// Package httplimit is the net/http half of package admission: a middleware that asks a limit, the headers that describe limits to clients, and
// the client's address behind proxies.
package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/redisconn"
)

// Asker asks a limit by its name. [*admission.Limiter] is one.
type Asker interface {
	Ask(ctx context.Context, name string, id admission.Identity, n int64) (admission.Decision, error)
}

// Policy is the limit that a [Middleware] asks, and how. Only Limit is required.
type Policy struct {
	Limit string // the name of the limit that is asked

	// Identify returns the caller of a request. nil means Proxies.Identity: the client's
	// address, and the headers of the request.
	Identify func(r *http.Request) admission.Identity

	// Proxies are the proxies before this server, for the default of Identify.
	Proxies Proxies

	// Cost is the charge for a request, 1 to [admission.MaxCost]. Any other number is
	// a fault of the request. nil means 1.
	Cost func(r *http.Request) int64

	// Headers selects the headers that describe the limit to the client; "" means [BothHeaders].
	Headers RateLimitHeaders

	Logger *slog.Logger // logs faults that only the operator can repair; nil logs nothing
}

// Middleware asks a limit about each request. An admitted request goes to the handler behind
// it. A refused one is answered with a problem of RFC 9457. Every answer has the headers of
// [RateLimitHeaders.Set]:
//
//	429 limit-exceeded     with Retry-After: after that time a lone client passes
//	422 cost-impossible    the cost is above the most that the limit can ever hold
//	400 identity-missing   the limit counts by something that the request does not have
//	400 invalid            the cost is out of range
//	503 store-unavailable  with Retry-After: Redis is unavailable, and the limit is [admission.Closed]; store-full and store-forbidden say more
//	500 internal           a fault of the server, such as a limit that is not configured; see its log
//
// A Middleware asks one limit. For several limits, put one Middleware around the
// other. The outermost is asked first, and a request that an inner limit refuses has been
// spent at the outer ones. (Enqueue a job where that matters: one step decides all limits
// of a bucket.) The answer has the headers of all limits that were asked.
//
// It panics if the policy names no limit or its Proxies are not valid.
func Middleware(limiter Asker, policy Policy) func(http.Handler) http.Handler {
	if err := policy.Proxies.Validate(); err != nil || policy.Limit == "" {
		panic(fmt.Sprintf("httplimit: Middleware: want a limit and valid proxies: limit %q: %v", policy.Limit, err))
	}
	if policy.Identify == nil {
		policy.Identify = policy.Proxies.Identity
	}
	if policy.Cost == nil {
		policy.Cost = func(*http.Request) int64 { return 1 }
	}
	if policy.Logger == nil {
		policy.Logger = slog.New(slog.DiscardHandler)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cost := policy.Cost(r)
			if cost < 1 || cost > admission.MaxCost {
				problem{
					Title: "The request is not valid", Status: http.StatusBadRequest, Code: "invalid",
					Detail: fmt.Sprintf("it costs %d: want 1 to %d", cost, admission.MaxCost),
				}.write(w, r)
				return
			}
			d, err := limiter.Ask(r.Context(), policy.Limit, policy.Identify(r), cost)
			if err != nil {
				policy.fault(r, err).write(w, r)
				return
			}
			decisions := append(slices.Clone(Decisions(r.Context())), d)
			policy.Headers.Set(w.Header(), decisions, time.Now())
			if !d.Allowed {
				problemOf(&d, cost).write(w, r)
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), decisionsKey{}, decisions)))
		})
	}
}

type decisionsKey struct{}

// Decisions returns the decisions by which [Middleware] has let the request of ctx pass,
// the outermost first. The caller must not change them.
func Decisions(ctx context.Context) []admission.Decision {
	decisions, _ := ctx.Value(decisionsKey{}).([]admission.Decision)
	return decisions
}

func problemOf(d *admission.Decision, cost int64) problem {
	if d.Impossible {
		return problem{
			Title: "The cost can never be met", Status: http.StatusUnprocessableEntity, Code: "cost-impossible",
			Detail:           admission.ImpossibleText(cost, *d),
			ViolatedPolicies: []string{d.Limit},
		}
	}
	return problem{
		Type: TypeQuotaExceeded, Title: "Quota Exceeded", Status: http.StatusTooManyRequests, Code: "limit-exceeded",
		Detail:           admission.ExceededText(d.Return(), *d),
		ViolatedPolicies: []string{d.Limit}, RetryAfter: admission.RetrySeconds(d.Return()),
	}
}

// storeCodes are the codes of problems for the failures of Redis.
var storeCodes = map[redisconn.Failure]string{
	redisconn.Unreachable: "store-unavailable", redisconn.Refused: "store-unavailable", redisconn.Full: "store-full", redisconn.Forbidden: "store-forbidden",
}

// fault is the answer to a request that could not be decided. Details that the client must
// not know are logged. The [redisconn.Breaker] logs once that Redis is unavailable.
func (p *Policy) fault(r *http.Request, err error) problem {
	if missing, ok := errors.AsType[*admission.MissingIdentityError](err); ok {
		return problem{
			Title: "A limit counts by something that the request does not have", Status: http.StatusBadRequest,
			Code: "identity-missing", Detail: missing.Error(),
		}
	}
	failure := redisconn.FailureOf(err)
	if failure == redisconn.NoFailure && r.Context().Err() != nil {
		failure = redisconn.Unreachable
	}
	if code, ok := storeCodes[failure]; ok {
		return problem{
			Title: "Redis is unavailable", Status: http.StatusServiceUnavailable, Code: code,
			Detail: failure.Description() + ": retry", RetryAfter: 1,
		}
	}
	p.Logger.ErrorContext(r.Context(), "a request could not be decided", "limit", p.Limit, "error", err)
	return problem{
		Title: "Something went wrong here", Status: http.StatusInternalServerError, Code: "internal",
		Detail: "the log of the server says more",
	}
}
