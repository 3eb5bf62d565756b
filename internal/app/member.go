package app

import (
	"context"
	"fmt"

	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// memberStage tells the fleet what this process does. busy is how many jobs it delivers; nil: it delivers none.
func (d *daemon) memberStage(name, version string, busy func() int) (stage, error) {
	works := busy != nil
	m, err := fleet.NewMember(fleet.Config{
		Redis: d.redis, Timeout: d.config.CallTimeout(), Logger: d.log, Registerer: d.registry,
		About: func() fleet.About {
			about := fleet.About{Name: name, Version: version, Revision: d.inForce.Load().Revision, Works: works}
			if works {
				about.Busy = busy()
			}
			return about
		},
		Buckets: func() []string {
			cfg := d.inForce.Load().Config
			if works {
				return namesOf(dispatched(cfg))
			}
			return namesOf(Buckets(cfg))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("join the fleet: %w", err)
	}
	return func(ctx context.Context) error { return m.Run(ctx) }, nil
}

func namesOf(buckets []shaper.Bucket) []string {
	names := make([]string, len(buckets))
	for i := range buckets {
		names[i] = buckets[i].Name
	}
	return names
}
