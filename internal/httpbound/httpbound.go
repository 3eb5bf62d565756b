// Package httpbound holds the bounds of the HTTP servers that the configuration names too.
package httpbound

import "time"

const (
	// DefaultConnections is the default number of requests of a server at a time.
	DefaultConnections = 4096

	DefaultBodyMemory = 64 << 20 // bytes of all bodies together
	MinBodyMemory     = 16 << 20 // room for any one request

	// MaxWait bounds how long a request waits for a result, a client of the proxy too. One that prefers more waits for so long.
	MaxWait = 5 * time.Minute
)
