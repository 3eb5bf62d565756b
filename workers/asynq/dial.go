package asynq

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/producer"
)

// dialed holds the connections of [Dial], which [Client.Close] closes.
type dialed struct {
	conn   redis.UniversalClient
	leases *dispatcher.Leases
}

// Dial returns a client for the Redis of Tundish at a URL of [redisconn.Connect]. It enqueues into the named buckets, whose settings a dispatcher has
// written to Redis. The middleware of an asynq server needs none of them: see [Client.Middleware]. It logs to [slog.Default].
//
// Dial makes no round trip: if Redis is down, the first call returns the error. Close the client at the end, after the asynq server has shut down.
func Dial(url string, buckets ...string) (*Client, error) {
	log := slog.Default()
	conn, err := redisconn.Connect(url, redisconn.Options{Logger: log})
	if err != nil {
		return nil, fmt.Errorf("tundishasynq: %w", err)
	}
	named := make([]shaper.Bucket, len(buckets))
	for i, name := range buckets {
		named[i].Name = name
	}
	jobs, err := producer.New(producer.Config{Redis: conn, Buckets: named, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("tundishasynq: %w", errors.Join(err, conn.Close()))
	}
	leases, err := dispatcher.NewLeases(dispatcher.LeasesConfig{Redis: conn, Logger: log})
	if err != nil {
		jobs.Close()
		return nil, fmt.Errorf("tundishasynq: %w", errors.Join(err, conn.Close()))
	}
	return &Client{jobs: jobs, dialed: &dialed{conn, leases}}, nil
}

// Middleware is [Middleware] over the client's own connection. The client has to come from [Dial]: another one panics.
func (c *Client) Middleware() asynq.MiddlewareFunc {
	if c.dialed == nil {
		panic("tundishasynq: Client.Middleware of a client that Dial did not make: call Middleware with dispatcher.NewLeases")
	}
	return Middleware(c.dialed.leases)
}

// close ends the leases before their connection.
func (d *dialed) close() error {
	d.leases.Close()
	if err := d.conn.Close(); err != nil {
		return fmt.Errorf("tundishasynq: %w", err)
	}
	return nil
}
