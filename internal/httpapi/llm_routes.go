package httpapi

import (
	"time"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/llm"
)

// LLMRoutes returns the buckets of a proxy route to the APIs of language models, in the order of the configuration; none for an unknown route. A proxy route
// streams responses to the client. Before, a request waits as a job for its slot. The process that accepted it calls the API itself, by the permit of
// the job: see [llm.Transport].
//
//	client ──► route ──► bucket ──► dispatcher
//	             │ ◄───── ticket ─────┘
//	       ◄───► └──────────────────────────────► API
type LLMRoutes func(route string) []RouteBucket

// orFirstNames also finds the route of a renamed bucket by the first name of the bucket. A route of that name has precedence.
func (routes LLMRoutes) orFirstNames(buckets interface{ CurrentName(name string) string }) LLMRoutes {
	return func(name string) []RouteBucket {
		if found := routes(name); len(found) > 0 {
			return found
		}
		return routes(buckets.CurrentName(name))
	}
}

// RouteBucket is a bucket behind a route.
type RouteBucket struct {
	API      *llm.Transport
	Priority shaper.Priority

	// Fallback is the bucket for a request that would wait longer than FallbackAfter; nil there is none. It has none itself.
	Fallback      *RouteBucket
	FallbackAfter time.Duration

	// FallbackModels maps models of this bucket to models of the fallback. A model that is not in it keeps its name.
	FallbackModels map[string]string
}
