package cli

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/app"
	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// station is an open connection to the store, for the operator's commands.
type station struct {
	config   *config.Config
	redis    redis.UniversalClient
	operator *operator.Operator
	client   *producer.Client   // changes limits in the buckets that name them
	limiter  *admission.Limiter // and the standalone limits
}

// commandPatience is the least time that a command waits for a reply of Redis. A daemon's redis.timeout is short, because its callers and its other work
// wait: the user of a command prefers a late reply to none.
const commandPatience = 10 * time.Second

// open loads the configuration and returns an operator for its Redis; with the embedded store, for the one in the running dispatcher. It does not dial.
func (a *invocation) open() (*station, error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	cfg.Redis.Timeout = max(cfg.Redis.Timeout, commandPatience)
	conn, err := app.Connect(cfg, cfg.Redis.Address(), nil)
	if err != nil {
		return nil, err
	}
	s := &station{config: cfg, redis: conn}
	s.operator, err = operator.New(operator.Config{Redis: conn, Buckets: app.Buckets(cfg), Timeout: cfg.CallTimeout(), CheckFlow: app.CheckFlow(cfg), CheckJob: app.CheckJob(cfg)})
	if err == nil {
		s.client, err = producer.New(producer.Config{Redis: conn, Buckets: app.Buckets(cfg), Timeout: cfg.CallTimeout()})
	}
	if err == nil {
		s.limiter, err = admission.NewLimiter(admission.LimiterConfig{Redis: conn, Limits: cfg.Limits, Revision: cfg.Revision, Timeout: cfg.CallTimeout(), ReadOnly: true})
	}
	if err != nil {
		_ = conn.Close() // nothing was sent on it
		return nil, err
	}
	return s, nil
}

func (s *station) close() {
	_ = s.redis.Close() // every call has its reply
}

// explain adds to an error of Redis what to do about it.
func (s *station) explain(err error) error {
	if answered, ok := errors.AsType[*problem](err); ok && answered.cause != nil {
		err = answered.cause
	}
	switch {
	case err == nil:
		return nil
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"):
		return fail(exitUsage, "Redis at %s refuses the password: set redis.password or TUNDISH_REDIS_PASSWORD (of sentinels: redis.sentinel_password): %w", s.config.Redis.URL, err)
	case errors.Is(err, redis.Nil) && strings.Contains(string(s.config.Redis.URL), "+sentinel:"):
		return fail(exitUsage, "the sentinels at %s know no master of this name: %w", s.config.Redis.URL, err)
	case redis.HasErrorPrefix(err, "NOPERM"):
		return fail(exitUsage, "Redis at %s forbids the user a command: deploy/redis/users.acl lists the commands that are needed: %w", s.config.Redis.URL, err)
	case !redisconn.Unavailable(err):
		return err
	default:
		return s.unavailable(err)
	}
}

// unavailable explains a call that Redis may serve at another time.
func (s *station) unavailable(err error) error {
	where := "Redis at " + s.config.Redis.URL.String()
	if s.config.Redis.URL.Embedded() {
		where = "the embedded store on " + s.config.Redis.EmbeddedListen
		if s.config.File != "" {
			where += " (as " + s.config.File + " has it)"
		}
	}
	_, answered := errors.AsType[redis.Error](err)
	network, isNetwork := errors.AsType[net.Error](err)
	switch {
	case answered:
		return fail(exitUnreachable, "%s answers, and refuses the command for now: %w", where, err)
	case isDial(err) && s.config.Redis.URL.Embedded():
		return fail(exitUnreachable, "%s does not answer: it lives in `dispatcher run` of the same configuration, so start that, name another configuration with --config, or set redis.url to a real Redis: %w", where, err)
	case isDial(err):
		return fail(exitUnreachable, "%s does not answer: is it running, and is redis.url right? (%w)", where, err)
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return fail(exitUnreachable, "this process has no free connection to %s (%w): raise redis.pool_size, or do less at a time", where, err)
	case isNetwork && network.Timeout():
		return fail(exitUnreachable, "%s gave no answer in time: it is busy, far away or stopped; `dispatcher doctor` measures its round trips. "+
			"A change may have been made: look before you make it again (%w)", where, err)
	case errors.Is(err, redisconn.ErrBreakerOpen):
		return fail(exitUnreachable, "%s failed the last calls: try again (%w)", where, err)
	default:
		return fail(exitUnreachable, "%s broke the connection: try again. A change may have been made: look before you make it again (%w)", where, err)
	}
}

// withStation runs do with an open station, and explains its error.
func (a *invocation) withStation(ctx context.Context, do func(ctx context.Context, s *station) error) error {
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.close()
	return s.explain(do(ctx, s))
}
