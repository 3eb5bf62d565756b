package store

import (
	"fmt"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/codec"
)

// HasFlows reports whether the bucket has flows, as this process knows it.
func (b *Bucket) HasFlows() bool { return b.Levels() != codec.LevelsNone }

func errFlowsChanged(levels int, jobs, was int64) error {
	return fmt.Errorf("holds %d jobs that were queued %s, and is configured %s: drain or purge it first",
		jobs, levelsText(int(was)), levelsText(levels))
}

func levelsOf(b *shaper.Bucket) int {
	switch {
	case b.Flow == nil:
		return codec.LevelsNone
	case b.Group == nil:
		return codec.LevelsFlows
	default:
		return codec.LevelsGroups
	}
}

// levelsText describes a number of levels for people.
func levelsText(levels int) string {
	return [...]string{"without flows", "with flows", "with flows in groups"}[levels]
}

// Levels returns the number of levels of the bucket, as this process knows it: it cannot change.
func (b *Bucket) Levels() int { return b.Keys.Levels }
