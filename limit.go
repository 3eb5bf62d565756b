package tundish

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/admission/httplimit"
	"github.com/tundish-io/tundish/redisconn"
)

// Limit is a limit on its own, without a bucket: a call above it is refused, or waits in the calling program. Nothing is queued in Redis.
type Limit struct {
	client *Client
	name   string
}

// Limit returns a limit such as "10/s" or "100/h" for each key, over all programs that name it. A function may change it, such as its algorithm or its
// burst; without one it is a token bucket, whose burst is the count of the rate. The program that sets the rate owns the limit; an operator may override
// it. A rate of "" means a limit that this client knows already. It takes up to three round trips. If Redis is down, the first check makes them instead.
func (c *Client) Limit(name, rate string, change ...func(*admission.Limit)) (*Limit, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := slices.IndexFunc(c.limits, func(l admission.Limit) bool { return l.Name == name })
	if rate == "" && known >= 0 {
		return &Limit{c, name}, nil
	}
	l := admission.Limit{Name: name, Per: []string{admission.PerCaller}, OnMissing: admission.Share}
	var err error
	if l.Limit, err = admission.ParseRate(rate); err != nil {
		return nil, fmt.Errorf("limit %q: %w", name, err)
	}
	for _, f := range change {
		f(&l)
	}
	l.Name = name
	limits := slices.Clone(c.limits)
	if known >= 0 {
		limits[known] = l
	} else {
		limits = append(limits, l)
	}
	err = c.limiter.Reconfigure(context.Background(), limits, c.revision)
	if failure := redisconn.FailureOf(err); err != nil && (failure == redisconn.NoFailure || failure == redisconn.Forbidden) {
		return nil, err
	}
	c.limits = limits
	return &Limit{c, name}, nil
}

// Evenly makes a limit allow one call at a time, at intervals: for [Limit.Wait] before an API that dislikes bursts.
func Evenly(l *admission.Limit) { l.Burst = 1 }

// Allow checks whether one more call for a key is within the limit now, and counts it if so. The key is any text; "" counts all callers together. A
// refusal is a decision, with the time after which to retry, and no error. It is one round trip, which concurrent checks share. While Redis is down it
// is an error, after 250 ms at most, unless the limit says otherwise (OnStoreFailure).
func (l *Limit) Allow(ctx context.Context, key string) (admission.Decision, error) {
	return l.client.limiter.AskKey(ctx, l.name, "", key, 1)
}

// Wait waits until the limit allows one more call for a key: use it before each call that is to be paced. See [admission.Limiter.Wait]: waiting calls
// pass in no promised order, at most one for each round trip, process and key. Wait returns the error of ctx, or an error of Allow.
func (l *Limit) Wait(ctx context.Context, key string) error {
	return l.client.limiter.Wait(ctx, l.name, key, 1)
}

// Middleware responds to requests above the limit with 429, Retry-After and the rate-limit headers, and passes the others on. It counts by the client's
// address; [httplimit.Middleware] does so behind proxies, or by a header, and takes [Client.Limiter].
func (l *Limit) Middleware(next http.Handler) http.Handler {
	return httplimit.Middleware(l.client.limiter, httplimit.Policy{Limit: l.name, Logger: l.client.cfg.Log})(next)
}
