package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper/internal/metrics"
)

// Progress holds the recent results of a bucket's requests, over all processes that ran in the last minute.
type Progress struct {
	// Window is the time that the next three fields cover: about 30 seconds, in whole heartbeats that all processes have reported.
	Window    time.Duration
	Arrived   int64 // admitted jobs
	Succeeded int64 // requests whose delivery succeeded: a batch is one
	Gone      int64 // jobs that are done, dead or dropped

	// In the last minute.
	Attempts     int64  // finished attempts
	Unsuccessful int64  // of these, the ones that did not succeed
	Reason       string // of the last attempt that did not succeed; "" if none is known

	Last time.Time // when a delivery last succeeded, to a few seconds; zero: not since the processes started
}

// recent is the number of slots in [Progress.Window].
const recent = 6

// outcomes holds the counts of a process in one slot.
type outcomes struct{ arrived, succeeded, attempts, unsuccessful, gone int64 }

func (o *outcomes) numbers() []*int64 {
	return []*int64{&o.arrived, &o.succeeded, &o.attempts, &o.unsuccessful, &o.gone}
}

// progress holds the last minute of a process, the newest slot first.
type progress struct {
	slots  [Slots]outcomes
	last   int64  // when a delivery last succeeded, in microseconds
	reason string // of the last attempt that did not succeed
}

// shift starts a new slot.
func (p *progress) shift() {
	copy(p.slots[1:], p.slots[:])
	p.slots[0] = outcomes{}
}

// add adds the difference from the previous totals to the newest slot.
func (p *progress) add(is, before *metrics.Totals, now time.Time) {
	o := &p.slots[0]
	o.arrived += is.Arrived - before.Arrived
	o.succeeded += is.Succeeded - before.Succeeded
	o.attempts += is.Attempts - before.Attempts
	o.unsuccessful += is.Unsuccessful - before.Unsuccessful
	o.gone += is.Gone - before.Gone
	if is.Succeeded > before.Succeeded {
		p.last = now.UnixMicro()
	}
	p.reason = is.Reason
}

// progressMark separates the counters of a bucket from its progress.
const progressMark = " | "

// text returns "last reason slot...". The numbers of a slot are joined by commas, an empty slot is "-", and trailing empty slots are omitted.
func (p *progress) text() string {
	var text strings.Builder
	text.WriteString(progressMark + strconv.FormatInt(p.last, 10) + " " + cmp.Or(strings.Join(strings.Fields(p.reason), "_"), "-"))
	n := len(p.slots)
	for n > 0 && p.slots[n-1] == (outcomes{}) {
		n--
	}
	for i := range p.slots[:n] {
		if p.slots[i] == (outcomes{}) {
			text.WriteString(" -")
			continue
		}
		separator := byte(' ')
		for _, number := range p.slots[i].numbers() {
			text.WriteByte(separator)
			text.WriteString(strconv.FormatInt(*number, 10))
			separator = ','
		}
	}
	return text.String()
}

// parseProgress parses what progress.text returns, without the mark. Anything but a number counts as 0.
func parseProgress(text string) (p progress) {
	words := strings.Fields(text)
	if len(words) < 2 { //nolint:mnd // last and reason
		return p
	}
	p.last, _ = strconv.ParseInt(words[0], 10, 64)
	if words[1] != "-" {
		p.reason = words[1]
	}
	for i, word := range words[2:] {
		if i == Slots {
			break
		}
		to := p.slots[i].numbers()
		for j, number := range strings.Split(word, ",") {
			if j < len(to) {
				*to[j], _ = strconv.ParseInt(number, 10, 64)
			}
		}
	}
	return p
}

// Progress returns the recent results of a bucket's requests.
func (s *Snapshot) Progress(bucket string) Progress {
	sum := Progress{Window: recent * HeartbeatInterval}
	newest := s.lastSlot()
	var last int64
	for _, p := range slices.Concat(s.Processes, s.left, s.gone) {
		c, ok := p.counts[bucket]
		if !ok {
			continue
		}
		for j := range c.progress.slots {
			age, o := int(newest-c.slot)+j, &c.progress.slots[j]
			if age < 0 { // some process has not reported this slot yet
				continue
			}
			if age >= Slots {
				break
			}
			if age < recent {
				sum.Arrived, sum.Succeeded, sum.Gone = sum.Arrived+o.arrived, sum.Succeeded+o.succeeded, sum.Gone+o.gone
			}
			sum.Attempts, sum.Unsuccessful = sum.Attempts+o.attempts, sum.Unsuccessful+o.unsuccessful
		}
		if c.progress.reason != "" && (sum.Reason == "" || c.progress.slots[0].unsuccessful > 0) {
			sum.Reason = c.progress.reason
		}
		last = max(last, c.progress.last)
	}
	if last > 0 {
		sum.Last = time.UnixMicro(last).UTC()
	}
	return sum
}

// lastSlot returns the newest slot that all processes have reported.
func (s *Snapshot) lastSlot() int64 {
	const delay = time.Second // after the end of a slot
	return s.Now.Add(-delay).UnixMicro()/HeartbeatInterval.Microseconds() - 1
}
