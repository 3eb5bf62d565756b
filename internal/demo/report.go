package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/shaper"
)

const (
	defaultWidth = 80
	chartHeight  = 4
	binJobs      = 20   // departures in a bin of the charts: fewer look uneven for their roundness alone
	fairShare    = 0.98 // of the rate that must be seen with backlog
)

// report is a run in numbers, and in JSON.
type report struct {
	Rate        int     `json:"rate"`
	Seconds     int     `json:"seconds"`
	Factor      float64 `json:"factor"`
	Capacity    int64   `json:"capacity"`
	Callers     int     `json:"callers"`
	Dispatchers int     `json:"dispatchers"`

	Admitted   int                   `json:"admitted"`
	Refused    int                   `json:"refused"`
	Reasons    map[shaper.Reason]int `json:"refused_for"`
	Delivered  int                   `json:"delivered"`
	Waiting    int                   `json:"waiting"` // safe in the bucket when the run ended
	Lost       int                   `json:"lost"`
	Unexpected int                   `json:"unexpected"`
	Duplicated int                   `json:"duplicated"`

	RateSeen    float64 `json:"rate_seen"` // from the first delivery to the last: there is always a backlog
	MostIn1s    int     `json:"most_in_1s"`
	MostAllowed int     `json:"most_in_1s_allowed"` // by the slots: rate + 1
	MostHere    int     `json:"most_in_1s_explained"`
	MostIn100ms int     `json:"most_in_100ms"`
	SpreadMS    float64 `json:"lateness_spread_ms"`

	Interrupted bool     `json:"interrupted"`
	Kept        bool     `json:"kept"`
	Broken      []string `json:"broken"` // how the promise was broken

	stays bool // it goes on after the report
}

// newReport reports whether the promise was kept. In 1 s the receiver may see as many as there are slots in 1 s and the spread of lateness: rate × (1 s +
// spread) + 1.
func newReport(opts Options, s seen) report {
	r := report{
		Rate: opts.Rate, Seconds: opts.Seconds, Factor: opts.Factor, Capacity: newBucket(opts).Capacity,
		Callers: len(callers), Dispatchers: dispatchers,

		Admitted: s.result.Admitted, Refused: s.result.Refused, Reasons: s.refused,
		Delivered: s.result.Delivered, Waiting: s.waiting,
		Lost:       max(len(s.result.Lost)-s.waiting, 0), // waiting jobs are not lost
		Unexpected: len(s.result.Unexpected), Duplicated: s.result.Extra,

		RateSeen: s.result.Rate, MostAllowed: opts.Rate + 1,
		MostIn1s: s.result.MostIn(time.Second), MostIn100ms: s.result.MostIn(100 * time.Millisecond),
		MostHere: int(math.Floor(float64(opts.Rate)*(time.Second+s.spread).Seconds())) + 1,
		SpreadMS: s.spread.Seconds() * 1000, Interrupted: s.interrupted,
		Broken: []string{}, stays: opts.Stay,
	}
	broken := func(when bool, format string, args ...any) {
		if when {
			r.Broken = append(r.Broken, fmt.Sprintf(format, args...))
		}
	}
	broken(r.Lost > 0, "%d admitted jobs were lost", r.Lost)
	broken(r.Unexpected > 0, "%d jobs were delivered that nobody pushed", r.Unexpected)
	broken(r.Duplicated > 0, "%d deliveries were repeated", r.Duplicated)
	broken(r.MostIn1s > r.MostHere, "%d departures in one second: at most %d can be explained", r.MostIn1s, r.MostHere)
	broken(r.Waiting > 0 && !r.Interrupted, "%d jobs were still not delivered long after they should have been", r.Waiting)
	r.Kept = len(r.Broken) == 0
	return r
}

func (r *report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func (r *report) writeText(w io.Writer, result checker.Result, width int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d callers pushed in bursts; %d dispatchers let them out of one bucket of %d at %d/s.\n\n",
		r.Callers, r.Dispatchers, r.Capacity, r.Rate)
	r.table(&b)

	if width == 0 {
		width = defaultWidth
	}
	bin := max(time.Duration(binJobs)*time.Second/time.Duration(r.Rate), 100*time.Millisecond)
	offered := result.ArrivalsPer(bin)
	for i, n := range result.RefusalsPer(bin) {
		offered[i] += n
	}
	fmt.Fprintf(&b, "\nWhat callers pushed, refused jobs included, and what the receiver saw:\n\n%s\n",
		checker.Plot(offered, result.DeparturesPer(bin), bin, width, chartHeight))
	b.WriteString(r.verdict() + "\n")
	if !r.stays {
		b.WriteString("`go run ./cmd/dispatcher demo --stay` keeps it running, with its console.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *report) table(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, value any, note string) {
		if note != "" {
			note = "  " + note
		}
		fmt.Fprintf(t, "%s\t%v\t%s\n", name, value, note)
	}
	row("delivered", r.Delivered, fmt.Sprintf("of %d admitted", r.Admitted))
	row("lost", r.Lost, "")
	if r.Waiting > 0 {
		row("waiting", r.Waiting, "when the demo was stopped")
	}
	row("duplicated", r.Duplicated, "")
	if r.Unexpected > 0 {
		row("unexpected", r.Unexpected, "")
	}
	row("rate", fmt.Sprintf("%.1f/s", r.RateSeen), fmt.Sprintf("%.1f %% of %d/s", 100*r.share(), r.Rate))
	allowed := fmt.Sprintf("at most %d", r.MostAllowed)
	if r.MostIn1s > r.MostAllowed {
		allowed += fmt.Sprintf("; this machine kept time to %.0f ms, which explains up to %d", r.SpreadMS, r.MostHere)
	}
	row("most in any 1 s", r.MostIn1s, allowed)
	row("most in any 100 ms", r.MostIn100ms, "")
	row("turned away", r.Refused, fmt.Sprintf("with a 429 and a time to come again: %d as the bucket was full, %d by the callers' own limit",
		r.Reasons[shaper.ReasonBucketFull], r.Reasons[shaper.ReasonLimit]))
	_ = t.Flush() // a strings.Builder takes everything
}

func (r *report) share() float64 { return r.RateSeen / float64(r.Rate) }

const next = "\nNext: `make run`, then `bin/producer send webhooks '{\"hello\":\"world\"}'`."

// verdict is the closing sentence.
func (r *report) verdict() string {
	switch {
	case !r.Kept:
		return "THE PROMISE WAS BROKEN: " + strings.Join(r.Broken, "; ") + ". That is a bug: please report it with this output."
	case r.Delivered < 2:
		return "Stopped before there was anything to see." + next
	case r.share() < fairShare:
		return fmt.Sprintf("Nothing was lost and the stream was never too fast, but it was slower than asked: %.1f %% of the rate. "+
			"Is this machine busy?%s", 100*r.share(), next)
	case r.Interrupted:
		return "Stopped early; the promise was kept so far: an even stream at the rate, nothing lost." + next
	case r.MostIn1s > r.MostAllowed:
		return "The promise was kept, as exactly as this machine keeps time; one that is less busy shows a more even stream." + next
	}
	return "The promise was kept: bursts in, an even stream out, nothing lost." + next
}
