package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// difference is a setting of a bucket or of a pool whose value in force differs from the
// configuration here.
type difference struct {
	Bucket     string     `json:"bucket,omitempty"` // none where a pool is shown on its own
	Setting    string     `json:"setting"`
	Configured string     `json:"configured"` // here; of an orphaned bucket: where it was
	InForce    string     `json:"in_force"`
	Why        string     `json:"why"`
	By         string     `json:"by,omitempty"`
	At         *time.Time `json:"at,omitempty"`
}

// differences lists the differences of a bucket: its pause, its overrides, and settings of
// another configuration, those of its pool too.
func (s *station) differences(v *bucketView) []difference {
	list := []difference{}
	if p := v.Pause; p != nil {
		list = append(list, difference{
			Bucket: v.Name, Setting: "paused", Configured: "no", InForce: "yes", Why: pauseText(p, v.info.Now), By: p.By, At: instant(p.Since),
		})
	}
	i := slices.IndexFunc(s.config.Buckets, func(b config.Bucket) bool { return b.Name == v.Name })
	for _, setting := range shaper.Settings() {
		here, inForce := "", ""
		if i >= 0 && v.info.Configured {
			here, inForce = settingOf(s.config.Buckets[i].Bucket, setting), inForceOf(&v.info, setting)
		}
		d := difference{Bucket: v.Name, Setting: string(setting), Configured: here, InForce: inForce}
		at := slices.IndexFunc(v.info.Overrides, func(p operator.Override) bool { return p.Setting == setting })
		switch {
		case at >= 0:
			override := v.info.Overrides[at]
			if here == "" {
				d.Configured = override.Configured
			}
			d.InForce, d.By, d.At = override.InForce, override.By, instant(override.At)
			d.Why = setBy(override, v.info.Now)
		case here == inForce || inForce == "":
			continue
		default:
			d.Why = s.otherRevision(v.info.Revision)
		}
		list = append(list, d)
	}
	if p := v.ofPool; p != nil && p.Configured && i >= 0 && s.config.Buckets[i].Pool != nil && s.config.Buckets[i].Pool.Name == p.Name {
		list = append(list, s.poolDifferences(v.Name, s.config.Buckets[i].Pool, p)...)
	}
	return list
}

// otherRevision explains a setting that differs from the configuration here, and is not an
// override: a configuration of another revision is in force.
func (s *station) otherRevision(inForce int64) string {
	if inForce > s.config.Revision {
		return fmt.Sprintf("revision %d is in force, here is %d", inForce, s.config.Revision)
	}
	return "nothing that runs has used the configuration here"
}

// settingOf is a setting of a bucket as in the configuration.
func settingOf(b shaper.Bucket, setting shaper.Setting) string {
	switch setting {
	case shaper.SettingRate:
		return b.Rate.String()
	case shaper.SettingBurst:
		return fmt.Sprint(b.Burst)
	case shaper.SettingCapacity:
		return fmt.Sprint(b.Capacity)
	case shaper.SettingScheduledCapacity:
		return fmt.Sprint(b.ScheduledCapacity)
	case shaper.SettingMaxInFlight:
		return fmt.Sprint(b.MaxInFlight)
	case shaper.SettingShedLow:
		return fmt.Sprint(b.Shed.Low)
	case shaper.SettingShedNormal:
		return fmt.Sprint(b.Shed.Normal)
	case shaper.SettingShedHigh:
		return fmt.Sprint(b.Shed.High)
	}
	return ""
}

// inForceOf is a setting as the scripts obey it, "" where the numbers of a bucket
// do not tell.
func inForceOf(info *operator.BucketInfo, setting shaper.Setting) string {
	switch setting {
	case shaper.SettingShedLow, shaper.SettingShedNormal, shaper.SettingShedHigh:
		return ""
	}
	return settingOf(shaper.Bucket{
		Rate: info.Rate, Burst: info.Burst, Capacity: info.Capacity, ScheduledCapacity: info.ScheduledCapacity, MaxInFlight: info.MaxInFlight,
	}, setting)
}

func (a *app) bucketDiff(ctx context.Context, s *station) error {
	views, err := s.bucketViews(ctx)
	if err != nil {
		return err
	}
	list := []difference{}
	for i := range views {
		list = append(list, s.differences(&views[i])...)
	}
	if len(list) == 0 && !a.json {
		a.note("every bucket is as the configuration here says")
		return nil
	}
	return a.print(list, func(w io.Writer) {
		fmt.Fprintln(w, "BUCKET\tSETTING\tCONFIGURED\tIN FORCE\tWHY")
		for _, d := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", d.Bucket, d.Setting, dash(d.Configured), d.InForce, d.Why)
		}
	})
}
