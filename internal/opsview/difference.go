package opsview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tundish-io/tundish/internal/setting"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// Difference is a setting of a bucket or of a pool whose effective value differs from the configuration here.
type Difference struct {
	// Not of a pool that is shown on its own.
	Bucket  string `json:"bucket,omitempty"`
	Setting string `json:"setting"`

	// In the configuration of this process. For a bucket or a pool that was removed from it: the last configured value.
	Configured string `json:"configured"`
	InForce    string `json:"in_force"`
	Why        string `json:"why"`

	// The process with that configuration, which reports it every 10 seconds as long as it runs. Absent: this process.
	Process string     `json:"process,omitempty"`
	By      string     `json:"by,omitempty"`
	At      *time.Time `json:"at,omitempty"`
}

// Text returns the effective value, and why.
func (d *Difference) Text() string {
	if d.InForce == d.Configured { // an override that the configuration now agrees with
		return fmt.Sprintf("%s stays %s, whatever the configuration says: %s", d.Setting, d.InForce, d.Why)
	}
	return fmt.Sprintf("%s is %s, not %s: %s", d.Setting, d.InForce, cmp.Or(d.Configured, "-"), d.Why)
}

// differences lists the differences of a bucket: its pause, its overrides, and settings of another configuration, including the settings of its pool.
// The
// differences that other processes have reported follow.
func differences(info *operator.BucketInfo, configured *shaper.Bucket, pool *operator.PoolDetails, author shaper.Authorship) []Difference {
	list := []Difference{}
	if p := PauseOf(info.Pause); p != nil {
		list = append(list, Difference{
			Bucket: info.Name, Setting: "paused", Configured: "no", InForce: "yes", Why: p.Text(info.Now), By: p.By, At: instant(p.Since),
		})
	}
	var own shaper.Bucket
	if configured != nil {
		own = *configured
		own.MaxInFlight = own.EffectiveMaxInFlight()
	}
	for _, name := range shaper.Settings() {
		here, inForce := "", ""
		if configured != nil {
			here, inForce = setting.Text(&own, name), inForceOf(info, name)
		}
		d := Difference{Bucket: info.Name, Setting: string(name), Configured: here, InForce: inForce}
		if !d.explain(info.Overrides, name, info.Now) {
			if here == inForce || inForce == "" {
				continue
			}
			d.Why = otherConfiguration(info.Revision, configured.Revision, author, info.Now)
		}
		list = append(list, d)
	}
	if pool != nil && pool.Configured && configured != nil && poolNameOf(configured) == pool.Name {
		list = append(list, poolDifferences(info.Name, pool, configured.Pool, configured.Revision)...)
	}
	return append(list, dissents(info, list, author)...)
}

// dissents lists the settings of processes that differ from the effective ones. For this process it lists only those that are not in known.
func dissents(info *operator.BucketInfo, known []Difference, author shaper.Authorship) []Difference {
	var list []Difference
	for _, dissent := range author.Dissents {
		process := dissent.Process
		if process == redisconn.ProcessName() {
			process = ""
		}
		for _, one := range dissent.Differences {
			d := Difference{Bucket: info.Name, Setting: string(one.Setting), Configured: one.Here, InForce: one.InForce, Process: process}
			switch {
			case process != "":
				d.Why = fmt.Sprintf("%s has it so, and goes by what is in force", process)
			case slices.ContainsFunc(known, func(k Difference) bool { return k.Setting == d.Setting }):
				continue
			default:
				d.Why = otherConfiguration(info.Revision, info.Revision, author, info.Now)
			}
			list = append(list, d)
		}
	}
	return list
}

// differsHere counts the differences from the configuration here.
func (v *Bucket) differsHere() (n int) {
	for _, d := range v.Differences {
		if d.Process == "" {
			n++
		}
	}
	return n
}

// dissenters returns the other processes that have other settings.
func (v *Bucket) dissenters() (names []string) {
	for _, d := range v.Differences {
		if d.Process != "" && !slices.Contains(names, d.Process) {
			names = append(names, d.Process)
		}
	}
	return names
}

// othersText names processes in a note.
func othersText(names []string) string {
	if len(names) == 1 {
		return names[0] + " has other settings"
	}
	return strings.Join(names, ", ") + " have other settings"
}

// poolDifferences lists the settings of a pool that differ from the configuration here. configured is the pool in it, nil if it has none. bucket is a
// bucket of the pool that reports them, or "".
func poolDifferences(bucket string, there *operator.PoolDetails, configured *shaper.Pool, revision int64) []Difference {
	list := []Difference{}
	inForce := &shaper.Pool{Rate: there.Rate, Burst: there.Burst, MaxInFlight: there.MaxInFlight}
	var here shaper.Pool
	if configured != nil {
		here = *configured
		here.Burst = max(here.Burst, 1)
	}
	for _, name := range shaper.PoolSettings() {
		d := Difference{Bucket: bucket, Setting: string(name), InForce: setting.Text(inForce, name)}
		if bucket != "" {
			d.Setting = "pool." + d.Setting
		}
		if configured != nil {
			d.Configured = setting.Text(&here, name)
		}
		if !d.explain(there.Overrides, name, there.Now) {
			if configured == nil || d.Configured == d.InForce {
				continue
			}
			d.Why = otherRevision(there.Revision, revision)
		}
		list = append(list, d)
	}
	return list
}

// explain fills in the override of a setting, and reports whether there is one.
func (d *Difference) explain(overrides []operator.Override, name shaper.Setting, now time.Time) bool {
	at := slices.IndexFunc(overrides, func(o operator.Override) bool { return o.Setting == name })
	if at < 0 {
		return false
	}
	override := overrides[at]
	if d.Configured == "" {
		d.Configured = override.Configured
	}
	d.InForce, d.By, d.At = override.InForce, override.By, instant(override.At)
	d.Why = Line(fmt.Sprintf("set %s by %s", Relative(override.At, now), override.By), 200)
	return true
}

// otherConfiguration explains a setting that differs from the configuration here without an override: it names the writer of the effective value.
func otherConfiguration(inForce, here int64, author shaper.Authorship, now time.Time) string {
	why := "another configuration is in force"
	switch {
	case author.Provisional:
		why = author.By + " made it, which does not own it: a dispatcher replaces it"
	case author.By == redisconn.ProcessName():
		why = "this process wrote what is in force, when it started or reloaded " + Relative(author.At, now)
	case author.By != "":
		why = author.By + " wrote what is in force, when it started or reloaded " + Relative(author.At, now)
	}
	if inForce > here {
		return fmt.Sprintf("revision %d is in force, here is %d: %s", inForce, here, why)
	}
	return why
}

// otherRevision is the same of a pool.
func otherRevision(inForce, here int64) string {
	if inForce > here {
		return fmt.Sprintf("revision %d is in force, here is %d", inForce, here)
	}
	return "another configuration is in force"
}

// inForceOf returns the effective value of a setting, "" if the numbers of a bucket don't have it.
func inForceOf(info *operator.BucketInfo, name shaper.Setting) string {
	if strings.HasPrefix(string(name), "shed.") {
		return ""
	}
	var budgets shaper.Budgets
	for _, use := range info.Budgets {
		budgets = append(budgets, use.Budget)
	}
	return setting.Text(&shaper.Bucket{
		Rate: info.Rate, Burst: info.Burst, Capacity: info.Capacity, ScheduledCapacity: info.ScheduledCapacity, MaxInFlight: info.MaxInFlight, Budgets: budgets,
	}, name)
}
