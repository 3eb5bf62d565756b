package harness

import "github.com/tundish-io/tundish/shaper"

// WorkersOf makes one worker deliver for all the buckets.
func WorkersOf(buckets []shaper.Bucket, worker shaper.Worker) map[string]shaper.Worker {
	workers := make(map[string]shaper.Worker, len(buckets))
	for i := range buckets {
		workers[buckets[i].Name] = worker
	}
	return workers
}
