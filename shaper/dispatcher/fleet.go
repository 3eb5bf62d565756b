package dispatcher

import (
	"context"
	"time"

	"github.com/tundish-io/tundish/shaper/fleet"
)

// newMember is what tells the fleet what this dispatcher does; nil where it is not to.
func (d *Dispatcher) newMember() (*fleet.Member, error) {
	if d.cfg.Program == "" {
		return nil, nil //nolint:nilnil // as it says
	}
	return fleet.NewMember(fleet.Config{
		Redis: d.store.Redis, Timeout: d.store.Timeout, Logger: d.store.Log, Registerer: d.cfg.Registerer, Buckets: d.store.Names, About: d.about,
	})
}

// about is what the dispatcher says of itself.
func (d *Dispatcher) about() fleet.About {
	about := fleet.About{Name: d.cfg.Program, Version: d.cfg.Version, Works: true}
	for _, l := range *d.loops.Load() {
		about.Busy += l.held.count()
		about.Revision = max(about.Revision, l.Settings.Load().Revision)
		if fault := l.deliveries.hostFault(); fault != "" && len(about.HostFaults) < fleet.MaxHostFaults {
			if about.HostFaults == nil {
				about.HostFaults = map[string]string{}
			}
			about.HostFaults[l.Name] = fault
		}
	}
	if skew := time.Duration(d.skew.last.Load()); skew.Abs() > maxSkew {
		about.ClockSkew = skew.Seconds()
	}
	return about
}

// tellFleet tells what the dispatcher does until ctx ends.
func (d *Dispatcher) tellFleet(ctx context.Context) {
	if d.member != nil {
		d.member.Run(ctx)
	}
}

// count is how many jobs are held.
func (h *leaseHolder) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.jobs)
}
