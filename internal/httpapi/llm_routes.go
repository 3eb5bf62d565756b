package httpapi

import (
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

// LLMRoutes names the buckets behind a route to the APIs of language models, in the order of the configuration; none of a route that there is not. A route is a
// path of the proxy whose answers pass to the client as they come. In between a request waits as a job for its slot. The process that took it calls
// the API itself, by the permit of the job: see [llm.Transport].
//
//	client ──► route ──► bucket ──► dispatcher
//	             │ ◄──── ticket ─────┘
//	       ◄───► └──────────────────────────────► API
type LLMRoutes func(llmRoute string) []RouteBucket

// RouteBucket is a bucket behind a route.
type RouteBucket struct {
	API      *llm.Transport
	Priority shaper.Priority

	// Fallback is the bucket for a request that would wait longer than FallbackAfter; nil there is none. It has none itself.
	Fallback      *RouteBucket
	FallbackAfter time.Duration

	// FallbackModels says which model of the fallback answers for a model of this bucket. A model that it does not have is asked by its own name.
	FallbackModels map[string]string
}
