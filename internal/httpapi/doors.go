package httpapi

import (
	"context"
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/workers/llm"
)

// Doors are the doors to the APIs of language models: paths of the proxy whose answers pass to the client as they come. In between a request waits
// as a job for its slot. The process that took it calls the API itself, by the permit of the job: see [dispatcher.Permits].
//
//	client ──► door ──► bucket ──► dispatcher
//	             │ ◄──── ticket ─────┘
//	       ◄───► └──────────────────────────────► API
type Doors interface {
	// Buckets are those behind a door, in the order of the configuration; nil of a door that there is not.
	Buckets(door string) []DoorBucket

	// Acquire waits until a job may be sent.
	Acquire(ctx context.Context, job shaper.Job) (*dispatcher.Permit, error)
}

// DoorBucket is a bucket behind a door.
type DoorBucket struct {
	Name        string
	Worker      *llm.Worker
	Timeout     time.Duration // that a client waits until its request is sent
	Priority    shaper.Priority
	Credentials []string // headers, in small letters, that the bucket's own credentials take

	// Fallback is the bucket for a request that would wait longer than FallbackAfter; nil there is none. It has none itself.
	Fallback      *DoorBucket
	FallbackAfter time.Duration
}
