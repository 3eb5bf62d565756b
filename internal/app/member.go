package app

import (
	"context"
	"fmt"

	"github.com/tundish-io/tundish/shaper/fleet"
)

// memberStage reports a producer's activity to the fleet. A dispatcher reports its own.
func (d *daemon) memberStage(version string) (stage, error) {
	m, err := fleet.NewMember(fleet.Config{
		Redis: d.redis, Timeout: d.config.CallTimeout(), Logger: d.log, Registerer: d.registry, Buckets: d.client.Buckets,
		About: func() fleet.About {
			return fleet.About{Name: "producer", Version: version, Revision: d.inForce.Load().Revision, ReloadRefused: d.reloadRefused()}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("join the fleet: %w", err)
	}
	return func(ctx context.Context) error {
		m.Run(ctx)
		return nil
	}, nil
}
