package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/shaper"
)

// difference is a setting of a bucket in which what is in force is not what the
// configuration here says.
type difference struct {
	Bucket     string     `json:"bucket"`
	Setting    string     `json:"setting"`
	Configured string     `json:"configured"` // here; of an orphaned bucket: where it was
	InForce    string     `json:"in_force"`
	Why        string     `json:"why"`
	By         string     `json:"by,omitempty"`
	At         *time.Time `json:"at,omitempty"`
}

// differences lists those of a bucket: its pause, what an operator set, and
// where another configuration is in force.
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
		at := slices.IndexFunc(v.info.Pins, func(p shaper.Pin) bool { return p.Setting == setting })
		switch {
		case at >= 0:
			pin := v.info.Pins[at]
			if here == "" {
				d.Configured = pin.Configured
			}
			d.InForce, d.By, d.At = pin.InForce, pin.By, instant(pin.At)
			d.Why = line(fmt.Sprintf("set %s by %s", relative(pin.At, v.info.Now), pin.By), 200)
		case here == inForce || inForce == "":
			continue
		case v.info.Revision > s.config.Revision:
			d.Why = fmt.Sprintf("revision %d is in force, here is %d", v.info.Revision, s.config.Revision)
		default:
			d.Why = "nothing that runs has used the configuration here"
		}
		list = append(list, d)
	}
	if i >= 0 {
		list = append(list, poolDifferences(s.config.Buckets[i].Pool, &v.info)...)
	}
	return list
}

// poolDifferences lists those of the pool of a bucket.
func poolDifferences(p *shaper.Pool, info *shaper.BucketInfo) []difference {
	inForce := info.Pool
	if p == nil || inForce == nil || inForce.Name != p.Name || inForce.Rate.IsZero() {
		return nil
	}
	var list []difference
	for _, setting := range shaper.PoolSettings() {
		here := settingOf(shaper.Bucket{Rate: p.Rate, Burst: p.Burst, MaxInFlight: p.MaxInFlight}, setting)
		there := settingOf(shaper.Bucket{Rate: inForce.Rate, Burst: inForce.Burst, MaxInFlight: inForce.MaxInFlight}, setting)
		if here != there {
			list = append(list, difference{
				Bucket: info.Name, Setting: "pool." + string(setting), Configured: here, InForce: there,
				Why: "an operator set it, or another configuration is in force",
			})
		}
	}
	return list
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
func inForceOf(info *shaper.BucketInfo, setting shaper.Setting) string {
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
