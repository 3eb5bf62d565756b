package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/operator"
)

func (a *app) bucketCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "bucket",
		Short: "Look at buckets, pause, change or purge them",
		Long: `Look at buckets: their jobs and their rate. Pause, change or purge them while they
run. All processes obey at once, and after every restart.`,
		Example: `  dispatcher bucket list
  dispatcher bucket show webhooks --json
  dispatcher bucket pause webhooks --reason "the receiver is down"
  dispatcher bucket set webhooks --rate 20/s
  dispatcher bucket release webhooks
  dispatcher bucket list --diff`,
	}, a.bucketListCommand(), a.bucketShowCommand(), a.bucketPauseCommand(), a.bucketResumeCommand(), a.bucketReleaseCommand(),
		a.bucketSetCommand(), a.bucketResetCommand(), a.bucketPurgeCommand())
}

// bucketView is a bucket as commands print it.
type bucketView struct {
	Name              string         `json:"name"`
	Rate              string         `json:"rate"`
	Burst             int64          `json:"burst"`
	Depth             int64          `json:"depth"` // what counts against the capacity
	Capacity          int64          `json:"capacity"`
	Waiting           int64          `json:"waiting"`
	InFlight          int64          `json:"in_flight"`
	MaxInFlight       int64          `json:"max_in_flight"`
	Later             int64          `json:"later"` // delayed jobs and retries
	Scheduled         int64          `json:"scheduled"`
	ScheduledCapacity int64          `json:"scheduled_capacity"`
	Dead              int64          `json:"dead"`
	Remembered        int64          `json:"remembered_ids"`
	Forgotten         int64          `json:"forgotten_ids"`
	OldestSeconds     float64        `json:"oldest_age_seconds"`
	Callbacks         int64          `json:"callbacks"` // that wait: they count against the capacity too
	OldestCallback    float64        `json:"oldest_callback_age_seconds"`
	LastSlot          *time.Time     `json:"last_slot,omitempty"`
	Revision          int64          `json:"revision"`
	Orphaned          bool           `json:"orphaned"` // not in the configuration any more
	Pool              *opsview.Pool  `json:"pool,omitempty"`
	Pause             *opsview.Pause `json:"pause,omitempty"`
	Purged            int64          `json:"purged"`            // jobs that purges have dropped, ever
	Purging           int64          `json:"purging,omitempty"` // moved aside and not removed yet

	Downstream *opsview.Downstream `json:"downstream,omitempty"` // what the answers to it have changed; none if nothing
	FlowsHeld  *flowsHeld          `json:"flows_held,omitempty"` // none if there are none

	Notes []string `json:"notes"`

	Differences []difference `json:"differences"` // from the configuration here

	info   operator.BucketInfo
	ofPool *operator.PoolDetails // nil if it is in none
}

// flowsHeld are the numbers of flows that their downstream holds, as dispatchers count them about every 30 seconds.
type flowsHeld struct {
	Held     int64 `json:"held"`
	Open     int64 `json:"breaker_open"`
	HalfOpen int64 `json:"breaker_half_open"`
	Disabled int64 `json:"disabled"` // these are counted exactly
}

// bucketViews looks at the named buckets. Without names it looks at all buckets of the
// configuration, in its order, and then at those that Redis knows and the configuration does not.
func (s *station) bucketViews(ctx context.Context, names ...string) ([]bucketView, error) {
	if len(names) == 0 {
		known, err := s.operator.KnownBuckets(ctx)
		if err != nil {
			return nil, err
		}
		names = slices.Clone(s.operator.Buckets())
		for _, name := range known {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return []bucketView{}, nil
	}
	infos, err := s.operator.BucketInfos(ctx, names...)
	if err != nil {
		return nil, err
	}
	pools, err := s.poolsOf(ctx, infos)
	if err != nil {
		return nil, err
	}
	views := make([]bucketView, len(infos))
	for i, info := range infos {
		ofPool := pools[info.Name]
		if info.Elsewhere {
			ofPool = nil // ofPool is the pool of the configuration
		}
		views[i] = s.bucketView(info, ofPool)
		if info.Elsewhere {
			views[i].Notes = append(views[i].Notes, elsewhereNote(s.config, &info))
		}
	}
	return views, nil
}

// poolsOf looks at the pools of buckets, by the names of these.
func (s *station) poolsOf(ctx context.Context, infos []operator.BucketInfo) (map[string]*operator.PoolDetails, error) {
	var names []string
	for _, info := range infos {
		if info.Pool != nil && !slices.Contains(names, info.Pool.Name) {
			names = append(names, info.Pool.Name)
		}
	}
	if len(names) == 0 { // which would mean all
		return nil, nil
	}
	all, err := s.operator.PoolDetails(ctx, names...)
	if err != nil {
		return nil, err
	}
	of := map[string]*operator.PoolDetails{}
	for _, info := range infos {
		if info.Pool != nil {
			of[info.Name] = &all[slices.Index(names, info.Pool.Name)]
		}
	}
	return of, nil
}

func (s *station) bucketView(info operator.BucketInfo, ofPool *operator.PoolDetails) bucketView {
	v := bucketView{ofPool: ofPool, Notes: []string{}, Pause: opsview.PauseOf(info.Pause), Purged: info.Purged, Purging: info.Purging}
	if v.Pause != nil {
		v.Notes = append(v.Notes, pauseText(v.Pause, info.Now))
	}
	if v.Downstream = opsview.DownstreamOf(info.Downstream, info.Now); v.Downstream != nil && v.Downstream.Text != "" {
		v.Notes = append(v.Notes, v.Downstream.Text)
	}
	if held := (flowsHeld{info.FlowsHeld, info.FlowsOpen, info.FlowsHalfOpen, info.FlowsDisabled}); held != (flowsHeld{}) {
		v.FlowsHeld = &held
	}
	i := slices.IndexFunc(s.config.Buckets, func(b config.Bucket) bool { return b.Name == info.Name })
	v.Orphaned = i < 0
	switch {
	case v.Orphaned && info.Unfinished+info.Scheduled+info.Dead+info.Callbacks > 0:
		v.Notes = append(v.Notes, "orphaned: not in the configuration, no dispatcher delivers its jobs")
	case v.Orphaned:
		v.Notes = append(v.Notes, "orphaned: not in the configuration, and empty")
	case !info.Configured:
		b := s.config.Buckets[i]
		info.Rate, info.Burst, info.Capacity, info.Revision = b.Rate, b.Burst, b.Capacity, b.Revision
		info.ScheduledCapacity, info.MaxInFlight = b.ScheduledCapacity, b.MaxInFlight
		if p := b.Pool; p != nil && info.Pool != nil {
			info.Pool.Rate, info.Pool.Burst, info.Pool.MaxInFlight, info.Pool.Weight = p.Rate, p.Burst, p.MaxInFlight, b.Weight
		}
		v.Notes = append(v.Notes, "not used yet")
	case info.Revision > s.config.Revision:
		v.Notes = append(v.Notes, fmt.Sprintf("obeys revision %d, the configuration here has %d", info.Revision, s.config.Revision))
	}
	if info.Purging > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("a purge has %d left to remove", info.Purging))
	}
	if info.Capacity > 0 && info.Unfinished+info.Callbacks >= info.Capacity {
		v.Notes = append(v.Notes, "full")
	}
	v.Name, v.Rate, v.Burst, v.Revision = info.Name, info.Rate.String(), info.Burst, info.Revision
	v.Depth, v.Capacity, v.Waiting = info.Unfinished, info.Capacity, info.Waiting
	v.InFlight, v.MaxInFlight, v.Dead = info.InFlight, info.MaxInFlight, info.Dead
	v.Later, v.Scheduled, v.ScheduledCapacity = info.Later, info.Scheduled, info.ScheduledCapacity
	v.Remembered, v.Forgotten, v.OldestSeconds = info.Remembered, info.Forgotten, info.OldestAge.Seconds()
	v.Callbacks, v.OldestCallback = info.Callbacks, info.OldestCallbackAge.Seconds()
	if !info.LastSlot.IsZero() {
		slot := info.LastSlot.UTC()
		v.LastSlot = &slot
	}
	v.Pool, v.info = opsview.PoolOf(info.Pool, info.Now), info
	v.Differences = s.differences(&v)
	if n := len(v.Differences); n > 1 || n == 1 && v.Pause == nil {
		v.Notes = append(v.Notes, "differs from the configuration here, see bucket list --diff")
	}
	return v
}

func (v *bucketView) oldest() string {
	if v.info.OldestAge == 0 {
		return "-"
	}
	return human(v.info.OldestAge)
}
