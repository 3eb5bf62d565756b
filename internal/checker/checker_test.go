package checker_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/must"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// after returns the instant so many milliseconds after t0.
func after(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }

func TestClasses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		log  func(h *checker.History)
		want checker.Result
	}{
		"nothing": {
			log: func(*checker.History) {},
		},
		"delivered": {
			log: func(h *checker.History) {
				h.Admitted("a", after(0))
				h.Admitted("b", after(0))
				h.Delivered("a", 1, after(10))
				h.Delivered("b", 1, after(20))
			},
			want: checker.Result{Admitted: 2, Delivered: 2, Rate: 100},
		},
		"admission logged after the delivery": {
			log: func(h *checker.History) {
				h.Delivered("a", 1, after(10))
				h.Admitted("a", after(11))
			},
			want: checker.Result{Admitted: 1, Delivered: 1},
		},
		"admitted twice is one job": {
			log: func(h *checker.History) {
				h.Admitted("a", after(0))
				h.Admitted("a", after(1))
				h.Delivered("a", 1, after(2))
			},
			want: checker.Result{Admitted: 1, Delivered: 1},
		},
		"lost": {
			log: func(h *checker.History) {
				h.Admitted("b", after(0))
				h.Admitted("a", after(0))
			},
			want: checker.Result{Admitted: 2, Lost: []string{"a", "b"}},
		},
		"dead is not lost": {
			log: func(h *checker.History) {
				h.Admitted("a", after(0))
				h.Dead("a")
				h.Dead("a")
			},
			want: checker.Result{Admitted: 1, Dead: 1},
		},
		"delivered and dead": {
			log: func(h *checker.History) {
				h.Admitted("a", after(0))
				h.Delivered("a", 1, after(1))
				h.Dead("a")
			},
			want: checker.Result{Admitted: 1, Delivered: 1, Dead: 1},
		},
		"unexpected": {
			log: func(h *checker.History) {
				h.Delivered("b", 1, after(0))
				h.Delivered("a", 1, after(0)) // at once: no rate
			},
			want: checker.Result{Delivered: 2, Unexpected: []string{"a", "b"}},
		},
		"unknown": {
			log: func(h *checker.History) {
				h.Unknown("came")
				h.Unknown("came not") // nobody promised it
				h.Unknown("admitted later")
				h.Admitted("admitted later", after(0))
				h.Delivered("came", 1, after(0))
			},
			want: checker.Result{Admitted: 1, Delivered: 1, Recovered: []string{"came"}, Lost: []string{"admitted later"}},
		},
		"refused": {
			log: func(h *checker.History) {
				h.Refused(3, after(0))
				h.Refused(4, after(1))
			},
			want: checker.Result{Refused: 7},
		},
		"duplicated": {
			log: func(h *checker.History) {
				for _, id := range []string{"once", "retried", "repeated", "no number"} {
					h.Admitted(id, after(0))
				}
				h.Delivered("once", 1, after(0))
				h.Delivered("retried", 1, after(0))
				h.Delivered("retried", 2, after(1))
				h.Delivered("repeated", 1, after(0))
				h.Delivered("repeated", 1, after(1))
				h.Delivered("repeated", 2, after(2))
				h.Delivered("no number", 0, after(0))
				h.Delivered("no number", 0, after(2))
			},
			want: checker.Result{
				Admitted: 4, Delivered: 8, Rate: 3500, Extra: 4, Repeated: 1,
				Duplicated: map[string]int{"retried": 1, "repeated": 2, "no number": 1},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h checker.History
			test.log(&h)
			got := h.Check()
			must.Equal(t, cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(checker.Result{}), cmpopts.EquateEmpty()), "", "Check (-want +got):")
			if faulty := len(test.want.Lost)+len(test.want.Unexpected) > 0; (got.Err() != nil) != faulty {
				t.Errorf("Err = %v", got.Err())
			}
		})
	}
}

func TestErrNamesAFew(t *testing.T) {
	t.Parallel()
	var h checker.History
	for i := range 10 {
		h.Admitted(fmt.Sprint("job-", i), after(i))
	}
	h.Delivered("ghost", 1, after(0))
	result := h.Check()
	if got, want := fmt.Sprint(result.Err()), "checker: 10 (job-0, job-1, job-2, ...) lost, 1 (ghost) unexpected"; got != want {
		t.Errorf("Err = %q, want %q", got, want)
	}
	want := "10 admitted, 0 refused, 1 delivered at 0/s, 0 dead, 10 lost, 1 unexpected, 0 duplicated, 0 recovered"
	must.Equal(t, result.String(), want, "String")
}

// delivered logs deliveries at so many milliseconds and returns the verdict.
func delivered(ms ...int) checker.Result {
	var h checker.History
	for i, at := range ms {
		h.Delivered(fmt.Sprint(i), 1, after(at))
	}
	return h.Check()
}

func TestMostIn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at     []int
		window time.Duration
		want   int
	}{
		"nothing":                          {nil, time.Second, 0},
		"one":                              {[]int{5}, time.Nanosecond, 1},
		"the end is outside":               {[]int{0, 1000}, time.Second, 1},
		"just inside":                      {[]int{0, 1000}, time.Second + 1, 2},
		"just inside, by time":             {[]int{0, 999}, time.Second, 2},
		"at the same instant":              {[]int{7, 7, 7}, time.Nanosecond, 3},
		"even stream":                      {[]int{0, 20, 40, 60, 80, 100}, 100 * time.Millisecond, 5},
		"not at a multiple of the window":  {[]int{0, 900, 950, 1050, 1100, 2000}, time.Second, 4},
		"across the edges of equal bins":   {[]int{90, 95, 105, 110}, 100 * time.Millisecond, 4},
		"the fullest is last":              {[]int{0, 500, 501, 502}, 10 * time.Millisecond, 3},
		"logged in any order":              {[]int{300, 0, 305, 10}, 10 * time.Millisecond, 2},
		"everything":                       {[]int{1, 2, 3}, time.Hour, 3},
		"a window of no length":            {[]int{1, 1, 2}, 0, 0},
		"a window of less than no length":  {[]int{1, 1, 2}, -time.Second, 0},
		"first of one second, then spaced": {[]int{0, 0, 1000, 1000, 2000}, time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			must.Equal(t, delivered(test.at...).MostIn(test.window), test.want, "MostIn(%s) of %v", test.window, test.at)
		})
	}
}

// The oracle tries every begin of a window, one millisecond apart.
func TestMostInAgreesWithBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.SliceOf(rapid.IntRange(0, 60)).Draw(t, "at")
		window := rapid.IntRange(1, 70).Draw(t, "window")
		want := 0
		for begin := range 61 {
			inside := 0
			for _, ms := range at {
				if begin <= ms && ms < begin+window {
					inside++
				}
			}
			want = max(want, inside)
		}
		must.Be(t, delivered(at...).MostIn(time.Duration(window)*time.Millisecond), want, "MostIn")
	})
}

func TestBins(t *testing.T) {
	t.Parallel()
	var h checker.History
	h.Delivered("a", 1, after(100)) // logged first, not the first in time
	h.Admitted("a", after(0))
	h.Admitted("b", after(99))
	h.Refused(2, after(250))
	h.Delivered("b", 1, after(399))
	result := h.Check()
	for name, test := range map[string]struct{ got, want []int }{
		"arrivals":   {result.ArrivalsPer(100 * time.Millisecond), []int{2, 0, 0, 0}},
		"refusals":   {result.RefusalsPer(100 * time.Millisecond), []int{0, 0, 2, 0}},
		"departures": {result.DeparturesPer(100 * time.Millisecond), []int{0, 1, 0, 1}},
		"one bin":    {result.ArrivalsPer(time.Hour), []int{2}},
		"no length":  {result.ArrivalsPer(0), nil},
		"no events":  {new(checker.History).Check().ArrivalsPer(time.Second), nil},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s = %v, want %v", name, test.got, test.want)
		}
	}
}

func TestHistoryIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 200
	var h checker.History
	var working sync.WaitGroup
	for worker := range workers {
		working.Go(func() {
			for i := range each {
				id := strings.Repeat("x", worker) + fmt.Sprint(i)
				h.Delivered(id, 1, after(i))
				h.Admitted(id, after(i))
				h.Refused(1, after(i))
				h.Dead(id)
				h.Unknown(id)
				if i%50 == 0 {
					h.Check()
				}
			}
		})
	}
	working.Wait()
	result := h.Check()
	if err := result.Err(); err != nil || result.Admitted != workers*each || result.Delivered != workers*each {
		t.Errorf("%v, %v", result, err)
	}
}
