package dispatcher

import (
	"context"
	"time"

	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// newMember returns the dispatcher's member of the fleet, nil without a Program.
func (d *Dispatcher) newMember() (*fleet.Member, error) {
	if d.cfg.Program == "" {
		return nil, nil //nolint:nilnil // as it says
	}
	return fleet.NewMember(fleet.Config{
		Redis: d.store.Redis, Timeout: d.store.Timeout, Logger: d.store.Log, Registerer: d.cfg.Registerer, Buckets: d.store.Names, About: d.about,
	})
}

// about returns how the dispatcher describes itself.
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
	if loss := d.lost.Load(); loss != nil && time.Since(loss.At) < fleet.LossKept {
		about.DataLost = loss
	}
	if d.cfg.ReloadRefused != nil {
		about.ReloadRefused = d.cfg.ReloadRefused()
	}
	return about
}

// noteLost reports to the fleet and records in the audit that Redis lost data. The audit has lost its records too, and would otherwise show no sign
// of it.
func (d *Dispatcher) noteLost(ctx context.Context, loss store.Loss) {
	found := &fleet.DataLoss{At: loss.At.UTC(), Buckets: loss.Buckets, Count: loss.Count}
	d.lost.Store(found)
	bounded, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	if err := fleet.KeepLoss(bounded, d.store.Redis, found); err != nil {
		d.store.Log.WarnContext(ctx, "dispatchers that start later will not report this loss of data", "error", err)
	}
	log := audit.NewLog(d.store.Redis, d.store.Timeout)
	r := &audit.Record{
		ID:     "data_lost " + loss.At.UTC().Truncate(time.Minute).Format(time.RFC3339), // all dispatchers find it, within 10 s
		Author: "tundish", Process: redisconn.ProcessName(), Operation: "data_lost", Asked: map[string]any{"buckets": loss.Buckets},
		Reason: "Redis lost data: earlier records may be gone with it",
	}
	err := log.Begin(ctx, r)
	if err == nil {
		r.Outcome = audit.Done
		err = log.End(ctx, r)
	}
	if err != nil {
		d.store.Log.WarnContext(ctx, "the audit does not have this loss of data", "error", err)
	}
}

// tellFleet sends the heartbeats of the dispatcher until ctx ends.
func (d *Dispatcher) tellFleet(ctx context.Context) {
	if d.member != nil {
		d.recallLoss(ctx)
		d.member.Run(ctx)
	}
}

// recallLoss makes the dispatcher report a loss of data of the last day that another process found, which may have stopped since. If Redis does not
// respond, it reports none: the processes that found it do.
func (d *Dispatcher) recallLoss(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.store.Timeout)
	defer cancel()
	if loss, err := fleet.LastLoss(ctx, d.store.Redis); err == nil && loss != nil {
		d.lost.CompareAndSwap(nil, loss)
	}
}

// count returns the number of jobs held.
func (h *leaseHolder) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.jobs)
}
