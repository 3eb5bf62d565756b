package shaper

import (
	"fmt"

	"github.com/tundish-io/tundish/admission"
)

// faults collects what is wrong with settings. Each fault begins with the prefix and the key of the configuration.
type faults struct {
	prefix string
	errs   []error
}

func (f *faults) add(key, format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%s%s: %s", f.prefix, key, fmt.Sprintf(format, args...)))
}

func (f *faults) inRange(key string, value, low, high int64) {
	if value < low || value > high {
		f.add(key, "%d: want %d to %d", value, low, high)
	}
}

// name checks the name of a bucket, a pool or a schedule.
func (f *faults) name(name string) {
	if !admission.ValidName(name) {
		f.add("name", "%q: want lower-case letters, digits, _ . and -, at most 63, the first a letter or digit", name)
	}
}

// pace checks a rate and a burst.
func (f *faults) pace(rate admission.Rate, burst int64) {
	if err := rate.Validate(); err != nil {
		f.add("rate", "%v", err)
	} else if rate.Unit != admission.UnitRequests {
		f.add("rate", "%q: only requests are paced in this version, not %s", rate, rate.Unit)
	} else if float64(burst)/rate.PerSecond() > MaxBurstTime.Seconds() {
		f.add("burst", "%d: at %s it takes more than %d days to come back", burst, rate, int(MaxBurstTime.Hours()/24))
	}
}
