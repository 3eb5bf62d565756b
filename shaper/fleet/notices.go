package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// DataLoss is a loss of data of Redis that a process noticed: the settings of its buckets were gone.
type DataLoss struct {
	At      time.Time `json:"at"`
	Buckets []string  `json:"buckets"` // at most 20
	Count   int       `json:"count"`   // of all
}

// LossKept is how long a process reports a loss of data.
const LossKept = 24 * time.Hour

// Notices returns one line for each problem that operators should know: a loss of data in the last day, refused configurations, host faults and clock
// skew.
func Notices(list []Process) []string {
	var lines []string
	var loss *DataLoss
	for i := range list {
		if of := list[i].DataLost; of != nil && (loss == nil || of.Count > loss.Count || of.Count == loss.Count && of.At.After(loss.At)) {
			loss = of
		}
	}
	if loss != nil {
		lines = append(lines, fmt.Sprintf("Redis lost data, seen %s: the settings of %s were gone (%s), and jobs, dead letters, flows with their URLs and secrets, pauses, overrides and the "+
			"audit may be gone with them. Pause again, import flows again (flow import), enqueue missing jobs again, and find out whether Redis was flushed or "+
			"restarted without persistence", loss.At.UTC().Format(time.RFC3339), numberOf(loss.Count, "bucket"), strings.Join(loss.Buckets, ", ")))
	}
	for i := range list {
		p := &list[i]
		if p.ReloadRefused != "" {
			lines = append(lines, fmt.Sprintf("%s on %s: its changed configuration is refused, and the previous one stays in force: %s", p.Name, p.Host, p.ReloadRefused))
		}
		for _, bucket := range slices.Sorted(maps.Keys(p.HostFaults)) {
			lines = append(lines, fmt.Sprintf("%s on %s: cannot connect for bucket %q, and claims less: %s", p.Name, p.Host, bucket, p.HostFaults[bucket]))
		}
		if p.ClockSkew != 0 {
			skew := time.Duration(p.ClockSkew * float64(time.Second)).Round(time.Second)
			lines = append(lines, fmt.Sprintf("%s on %s: the clocks of Redis and of this host differ by %s: run NTP on both", p.Name, p.Host, skew.Abs()))
		}
	}
	return lines
}

func numberOf(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
