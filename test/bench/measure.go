package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// hammer lets each caller make calls, one after the other, and returns the number of calls a second.
func hammer(ctx context.Context, callers int, length time.Duration, of func(caller int) func(context.Context) error) (float64, error) {
	var done atomic.Int64
	var failed atomic.Pointer[error]
	start := time.Now()
	var all sync.WaitGroup
	for caller := range callers {
		call := of(caller)
		all.Go(func() {
			for time.Since(start) < length && failed.Load() == nil {
				if err := call(ctx); err != nil {
					failed.Store(&err)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	if p := failed.Load(); p != nil {
		return 0, *p
	}
	return float64(done.Load()) / time.Since(start).Seconds(), nil
}

// inParallel makes n calls from a number of callers, and stops at the first error.
func inParallel(callers, n int, call func(i int) error) error {
	var failed atomic.Pointer[error]
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := call(i); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	all.Wait()
	if p := failed.Load(); p != nil {
		return *p
	}
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// alternate measures each side once a round.
func alternate(rounds int, sides ...func() (float64, error)) ([][]float64, error) {
	values := make([][]float64, len(sides))
	for range rounds {
		for i, side := range sides {
			value, err := side()
			if err != nil {
				return nil, err
			}
			values[i] = append(values[i], value)
		}
	}
	return values, nil
}

// medianRatio is the median of the ratios of each round.
func medianRatio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return median(ratios)
}

func at(sorted []time.Duration, percent int) time.Duration {
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)].Round(10 * time.Microsecond)
}
