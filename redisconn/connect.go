// Package redisconn is how this project connects to Redis: URLs, TLS, Sentinel and Cluster,
// the errors that mean "unavailable", and a circuit breaker.
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tundish-io/tundish/lua"
)

// Options are the settings of a connection to Redis. The zero value is ready to use.
type Options struct {
	Password         string        // overrides the password of the URL, if not empty
	SentinelPassword string        // of the sentinels; their user is sentinel_user in the URL
	Timeout          time.Duration // for one command; 0 means 1 s
	PoolSize         int           // connections at most, in a cluster to each node; 0 means 64
	TLS              TLSOptions    // for URLs that begin with rediss

	// Credentials, if not nil, returns the user and the password for each new connection, in place of those in the URL and Password. So the next
	// connection uses a changed password. SentinelCredentials does the same for connections to sentinels.
	Credentials, SentinelCredentials func() (user, password string, err error)

	// Dial, if not nil, makes the connections, for example through a tunnel or to a store in the process. With a URL of rediss it also does the
	// handshake.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// NoFunctions runs the scripts by EVALSHA, never as functions of Redis. Set it where another user of the Redis may load functions: such a
	// user can replace the library of functions, and its code then runs with the rights of this client.
	NoFunctions bool

	// Logger gets an error when another user has replaced the library of functions; nil logs nothing. See [lua.AsFunctions].
	Logger *slog.Logger
}

// DefaultTimeout bounds a command if no other timeout is given.
const DefaultTimeout = time.Second

// Settings for a failover within seconds: the defaults of go-redis are too slow.
const (
	// slotsReload is the age at which an idle client reads the map of a cluster again.
	// Errors trigger a read at once.
	slotsReload = time.Second
	// sentinelPatience times the timeout of a command is the time to find the master. So a hanging sentinel leaves time for the others.
	sentinelPatience = 3
	maxRedirects     = 3 // MOVED and ASK
)

// Connect returns the client on which this project runs its scripts. The URL is one of
//
//	redis://[user:password@]host[:6379][/db]
//	redis+sentinel://[user:password@]host[:26379][,host...]/master[/db][?sentinel_user=name]
//	redis+cluster://[user:password@]host[:6379][,host...]
//
// and the same with rediss for TLS, also to the sentinels. The client dials on first use.
// An error means that the URL or a file cannot be read.
//
// No other code builds a client, because the defaults of go-redis are wrong for a queue. They send
// a script again when its reply is lost, and ignore the deadline of a context. They keep a dead node
// of a cluster for a minute, and start goroutines for notifications of a managed Redis. Connect
// switches all of that off.
func Connect(url string, opts Options) (redis.UniversalClient, error) {
	a, err := parseAddress(url)
	if err != nil {
		return nil, fmt.Errorf("redis url %q: %w", RedactURL(url), err)
	}
	o := a.options
	if err := opts.TLS.apply(o.TLSConfig); err != nil {
		return nil, fmt.Errorf("redis url %q: %w", RedactURL(url), err)
	}
	if opts.Password != "" {
		o.Password = opts.Password
	}
	timeout := opts.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	o.PoolSize = opts.PoolSize
	if o.PoolSize == 0 {
		o.PoolSize = 64
	}
	o.CredentialsProviderContext = provider(opts.Credentials)
	if o.Password == "" && opts.Credentials == nil {
		o.OnConnect = askForPassword
	}
	o.Dialer = opts.Dial
	o.PipelinePoolSize = -1 // pipelines use the same pool
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.DialTimeout = timeout
	o.ReadTimeout = timeout
	o.WriteTimeout = timeout
	o.PoolTimeout = timeout
	o.DialerRetries = 1
	o.DisableIdentity = true
	o.Protocol = 2 // scripts reply alike in 2 and 3, and 2 has no pushes to check for before each reply
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := a.client(opts)
	if !opts.NoFunctions {
		lua.AsFunctions(client, opts.reportFunctions)
	}
	return client, nil
}

// askForPassword fails a new connection whose Redis wants a password that this program does not have. A script would find out too, but often
// without the reason: Redis closes a connection that sends more than ten arguments before its password, and the reset can overtake the
// error response (seen in 2 of about 600 requests).
func askForPassword(ctx context.Context, cn *redis.Conn) error {
	if err := cn.Ping(ctx).Err(); redis.HasErrorPrefix(err, "NOAUTH") {
		return err
	}
	return nil // the command itself finds out all else
}

// reportFunctions logs faults of the library of functions in Redis.
func (o *Options) reportFunctions(err error) {
	switch {
	case o.Logger == nil:
	case errors.Is(err, lua.ErrLibraryChanged):
		o.Logger.Error("code of another client of this Redis may have run with the rights of this program, which uses EVALSHA from now on", "error", err,
			"next", "set redis.functions = false in all programs, and remove the rights to load functions from other users of this Redis")
	default:
		o.Logger.Warn("functions of Redis are used unchecked", "error", err,
			"next", "give the user of redis.url the right function|list, or set redis.functions = false")
	}
}

func (a *address) client(opts Options) redis.UniversalClient {
	switch a.topology {
	case sentinel:
		o := a.failoverOptions(opts.SentinelPassword)
		if opts.SentinelCredentials != nil {
			o.SentinelUsername, o.SentinelPassword, o.OnConnect = "", "", signInToSentinels(opts.SentinelCredentials)
		}
		return redis.NewFailoverClient(o)
	case cluster:
		client := redis.NewClusterClient(a.clusterOptions())
		client.AddHook(follower{client})
		return client
	default:
		return redis.NewClient(a.options)
	}
}

// failoverOptions returns the options of one server, for a master that sentinels name.
func (a *address) failoverOptions(password string) *redis.FailoverOptions {
	o := a.options
	return &redis.FailoverOptions{
		Dialer: o.Dialer, MasterName: a.master, SentinelAddrs: a.hosts, SentinelUsername: a.sentinelUser, SentinelPassword: password,
		ClientName: o.ClientName, Username: o.Username, Password: o.Password, CredentialsProviderContext: o.CredentialsProviderContext, DB: o.DB, TLSConfig: o.TLSConfig,
		OnConnect: o.OnConnect, Protocol: o.Protocol, MaxRetries: o.MaxRetries, ContextTimeoutEnabled: o.ContextTimeoutEnabled,
		DialTimeout: sentinelPatience * o.DialTimeout, DialerRetries: o.DialerRetries,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, PoolFIFO: o.PoolFIFO, PipelinePoolSize: o.PipelinePoolSize,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime,
		DisableIdentity: o.DisableIdentity, // notifications of maintenance are always off here
	}
}

// clusterOptions returns the options of one server, for each master of a cluster.
func (a *address) clusterOptions() *redis.ClusterOptions {
	o := a.options
	return &redis.ClusterOptions{
		Dialer: o.Dialer, Addrs: a.hosts, MaxRedirects: maxRedirects, ClusterStateReloadInterval: slotsReload,
		// Each command goes to the node of its first key. With the policies, every
		// client would first ask for the table of all commands.
		DisableRoutingPolicies: true,
		ClientName:             o.ClientName, Username: o.Username, Password: o.Password, CredentialsProviderContext: o.CredentialsProviderContext, TLSConfig: o.TLSConfig,
		OnConnect: o.OnConnect, Protocol: o.Protocol, MaxRetries: o.MaxRetries, ContextTimeoutEnabled: o.ContextTimeoutEnabled,
		DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, PoolFIFO: o.PoolFIFO, PipelinePoolSize: o.PipelinePoolSize,
		MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns, MaxActiveConns: o.MaxActiveConns,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime,
		DisableIdentity: o.DisableIdentity, MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
}

// follower reads a cluster's map again when a node does not respond. go-redis itself does so only when a node responds that a slot has moved, and a
// dead node does not respond.
type follower struct{ client *redis.ClusterClient }

// DialHook implements [redis.Hook].
func (f follower) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (f follower) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		f.reloadMap(ctx, err)
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (f follower) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		f.reloadMap(ctx, err)
		return err
	}
}

// reloadMap does not wait. The library reads the map five times a second at most.
func (f follower) reloadMap(ctx context.Context, err error) {
	var answer redis.Error
	if err != nil && Unavailable(err) && (!errors.As(err, &answer) || redis.HasErrorPrefix(err, "CLUSTERDOWN")) {
		f.client.ReloadState(ctx)
	}
}
