// Package httpbound holds the bounds of the HTTP servers that the configuration also refers to.
package httpbound

import "time"

const (
	// DefaultConnections is the default number of requests of a server at a time.
	DefaultConnections = 4096

	// DefaultBodyMemory is the default of the memory for all bodies together. Each counts twice, so it is room for two of the largest of the LLM routes.
	DefaultBodyMemory = 128 << 20
	// MinBodyMemory is room for a job with the largest payload.
	MinBodyMemory = 16 << 20

	// DefaultIdleTimeout is how long a connection without a request is kept. Common proxies have shorter ones (nginx 60 or 75 s, AWS 60 s), so no
	// proxy sends a request on a connection that is about to be closed.
	DefaultIdleTimeout = 90 * time.Second

	// MaxWait bounds how long a request waits for a result, a client of the proxy too. One that prefers more waits for so long.
	MaxWait = 5 * time.Minute
)
