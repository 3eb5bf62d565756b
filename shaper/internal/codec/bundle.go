package codec

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// bundleNumbers is the number of fields of a bundle in Redis before its caller and URL: see lua/lib/bundle.lua.
const bundleNumbers = 8

// OpenBundle parses a bundle as the scripts write it.
func OpenBundle(bucket, id, text string) (shaper.BundleInfo, error) {
	b := shaper.BundleInfo{ID: id, Bucket: bucket}
	parts := strings.SplitN(text, " ", bundleNumbers+2)
	if len(parts) != bundleNumbers+2 {
		return b, fmt.Errorf("bucket %q: the bundle %q in Redis is not one of ours", bucket, id)
	}
	var n [bundleNumbers]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(parts[i], 10, 64); err != nil {
			return b, fmt.Errorf("bucket %q: the bundle %q in Redis is not one of ours: %w", bucket, id, err)
		}
	}
	b.Opened, b.Changed, b.Finished = InstantOf(n[0]), InstantOf(n[1]), InstantOf(n[2])
	b.Size, b.Done, b.Dead, b.Dropped, b.Cancelled = n[3], n[4], n[5], n[6], n[7]
	b.Owner.Mark, b.CallbackURL = strings.TrimPrefix(parts[bundleNumbers], "-"), parts[bundleNumbers+1]
	return b, nil
}

// OpenFinished parses the callback of a finished bundle. ok reports whether the text is such a callback.
func OpenFinished(bucket, name, text string) (b shaper.BundleInfo, at time.Time, ok bool, err error) {
	stored, ok := strings.CutPrefix(text, "bundle\n\n")
	if !ok {
		return b, at, false, nil
	}
	parts := strings.SplitN(name, " ", 3)
	if len(parts) != 3 {
		return b, at, true, fmt.Errorf("bucket %q: the callback %q in Redis is not one of ours", bucket, name)
	}
	micros, err := strconv.ParseInt(parts[0], 10, 64)
	if err == nil {
		b, err = OpenBundle(bucket, parts[2], stored)
	}
	return b, time.UnixMicro(micros), true, err
}

// IsInBundle reports whether a job is in a bundle, by the first line of its body.
func IsInBundle(line string) bool {
	words := strings.SplitN(line, " ", 4)
	return len(words) == 4 && strings.HasSuffix(words[2], inBundle+"^")
}

// IsOnlyCounted reports, from the first line of a job's body, whether its end has no callback and is only counted by its bundle.
func IsOnlyCounted(line string) bool {
	words := strings.SplitN(line, " ", 4)
	return len(words) == 4 && isOnlyCounted(strings.TrimSuffix(words[2], "^"))
}

// CountedLine returns a first line with only what a bundle needs to count the job. It is the same for all jobs of a flow and bundle.
func CountedLine(line string) string {
	job, err := Open(line + "\n")
	if err != nil {
		return line
	}
	header, err := json.Marshal(envelope{Flow: job.Flow, Group: job.Group, Bundle: job.Bundle})
	if err != nil {
		return line
	}
	end := inBundle
	if job.WasDead {
		end = redriven
	}
	return "0 0 " + UnknownMark + "000~=" + onlyCounted + end + "^ " + string(header)
}
