package fleet

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// binsKept covers the last 2.5 seconds: a view that reads each second misses none.
const binsKept = 25

// Counts holds the counts of a bucket in some time.
type Counts struct {
	Arrived  int64 `json:"arrived"`  // jobs that were let in
	Refused  int64 `json:"refused"`  // jobs that were not
	Departed int64 `json:"departed"` // requests that left: a batch is one
	Failed   int64 `json:"failed"`   // attempts whose job is tried again, or is dead
}

func (c *Counts) add(o Counts) {
	c.Arrived, c.Refused, c.Departed, c.Failed = c.Arrived+o.Arrived, c.Refused+o.Refused, c.Departed+o.Departed, c.Failed+o.Failed
}

// since returns the difference between c and an earlier count. If any counter is lower, the counters have restarted, and it returns c.
func (c Counts) since(o Counts) Counts {
	if c.Arrived < o.Arrived || c.Refused < o.Refused || c.Departed < o.Departed || c.Failed < o.Failed {
		return c
	}
	return Counts{c.Arrived - o.Arrived, c.Refused - o.Refused, c.Departed - o.Departed, c.Failed - o.Failed}
}

// binned counts a bucket in bins of 100 ms, by the clock of Redis.
type binned struct {
	totals metrics.Totals // at the end of the last bin
	at     int64          // the number of the last bin
	bins   [binsKept]Counts
}

// count closes the bins before now. If several bins have passed, the last one gets all counts.
func (b *binned) count(now time.Time, is metrics.Totals) {
	last := now.UnixMicro()/Bin.Microseconds() - 1
	if last <= b.at {
		return
	}
	for ; b.at < last; b.at++ {
		copy(b.bins[1:], b.bins[:])
		b.bins[0] = Counts{}
		if last-b.at > binsKept {
			b.bins, b.at = [binsKept]Counts{}, last-1
		}
	}
	b.bins[0] = Counts{is.Arrived - b.totals.Arrived, is.Refused - b.totals.Refused, is.Departed - b.totals.Departed, is.Failed - b.totals.Failed}
	b.totals = is
}

// text returns the number of the newest bin, then "arrived,refused,departed" of each bin, the newest first.
func (b *binned) text() string {
	var text strings.Builder
	text.WriteString(strconv.FormatInt(b.at, 10))
	for _, c := range b.bins {
		fmt.Fprintf(&text, " %d,%d,%d", c.Arrived, c.Refused, c.Departed)
	}
	return text.String()
}

// parseBins parses what binned.text returns.
func parseBins(text string) (newest int64, bins []Counts, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return 0, nil, errors.New("fleet: a process reports no bins")
	}
	if newest, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return 0, nil, fmt.Errorf("fleet: the bins of a process: %w", err)
	}
	for _, word := range words[1:] {
		var c Counts
		if _, err := fmt.Sscanf(word, "%d,%d,%d", &c.Arrived, &c.Refused, &c.Departed); err != nil {
			return 0, nil, fmt.Errorf("fleet: the bins of a process: %w", err)
		}
		bins = append(bins, c)
	}
	return newest, bins, nil
}
