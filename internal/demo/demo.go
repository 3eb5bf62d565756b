package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tundish-io/tundish/internal/checker"
)

// Bounds of the options. Above the highest rate the demo would show the limits of the embedded store. Below the lowest factor there may be no backlog,
// and so no rate to see.
const (
	MaxRate    = 500
	MinSeconds = 1
	MaxSeconds = 3600
	MinFactor  = 2
	MaxFactor  = 20
)

// ErrBroken says that the promise was broken: a job was lost, doubled or sent without an enqueue, or departures were faster than the rate allows.
var ErrBroken = errors.New("demo: the promise was broken")

// Options are the options of a run.
type Options struct {
	Rate    int     // departures a second, 1 to MaxRate
	Seconds int     // of pushing, 1 or more; the drain takes a few more
	Factor  float64 // jobs pushed, as a multiple of the rate: 2 to 20
	JSON    bool    // one JSON object on stdout in place of the report
	Stay    bool    // the traffic goes on after the report, with the console, until ctx ends
	Version string  // of this program, for the console
	Width   int     // columns of the report's charts; 0 means 80
}

// DefaultOptions returns 50/s, 10 s and three times the rate: half a minute's work, of which the demo shows twelve seconds.
func DefaultOptions() Options { return Options{Rate: 50, Seconds: 10, Factor: 3} }

// Validate reports every fault of the options, joined, or nil.
func (o Options) Validate() error {
	var errs []error
	if o.Rate < 1 || o.Rate > MaxRate {
		errs = append(errs, fmt.Errorf("rate: %d: want 1 to %d", o.Rate, MaxRate))
	}
	if o.Seconds < MinSeconds || o.Seconds > MaxSeconds {
		errs = append(errs, fmt.Errorf("seconds: %d: want %d to %d", o.Seconds, MinSeconds, MaxSeconds))
	}
	if !(o.Factor >= MinFactor && o.Factor <= MaxFactor) { // so that NaN is refused
		errs = append(errs, fmt.Errorf("factor: %g: want %d to %d", o.Factor, MinFactor, MaxFactor))
	}
	if o.Width < 0 {
		errs = append(errs, fmt.Errorf("width: %d: want 0 or more", o.Width))
	}
	return errors.Join(errs...)
}

// Run pushes in bursts for Options.Seconds, waits until all admitted jobs are delivered, and reports on stdout; meanwhile one line on stderr shows the
// progress. When ctx ends, Run stops and reports the results so far. It returns [ErrBroken] with the reasons if the promise did not hold; any other
// error means that nothing was shown. With Options.Stay a demo whose promise held goes on until ctx ends, which is no error.
func Run(ctx context.Context, opts Options, stdout, stderr io.Writer) error {
	if err := opts.Validate(); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	s, err := newStage(ctx, opts)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer s.close()
	running, stop := s.run(ctx)
	defer func() { _ = stop() }() // unless it was called before, another error is returned
	seen, err := s.play(ctx, stderr, stop)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := writeReport(newReport(opts, seen), seen.result, opts, stdout); err != nil {
		return err
	}
	if !opts.Stay || ctx.Err() != nil {
		return nil
	}
	where := stdout
	if opts.JSON {
		where = stderr // stdout is one object
	}
	if err := errors.Join(s.stay(running, where), stop()); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// writeReport writes the report, and returns an error if the promise was broken.
func writeReport(r report, result checker.Result, opts Options, stdout io.Writer) (err error) {
	if opts.JSON {
		err = r.writeJSON(stdout)
	} else {
		err = r.writeText(stdout, result, opts.Width)
	}
	if err != nil {
		return fmt.Errorf("demo: write the report: %w", err)
	}
	if len(r.Broken) > 0 {
		return fmt.Errorf("%w: %s", ErrBroken, strings.Join(r.Broken, "; "))
	}
	return nil
}
