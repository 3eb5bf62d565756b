package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	File   string // the file, or "env NAME"; "" if only the defaults are at fault
	Line   int    // 0 without one
	Column int    // of a syntax error only
	Key    string // dotted, such as `buckets[0] "webhooks".rate`
	Value  string // as in the file, masked if secret; "" if it would not help
	Reason string
}

// Error returns `config.toml:12: key: value: reason`, without the unknown parts.
func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	for _, n := range []int{f.Line, f.Column} {
		if n > 0 {
			fmt.Fprintf(&b, ":%d", n)
		}
	}
	for _, part := range []string{f.Key, f.Value, f.Reason} {
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(part)
	}
	return b.String()
}

// Faults are all faults of a configuration, in the order of the file, then of the environment.
type Faults []Fault

// Error returns one fault per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults, for errors.As.
func (f Faults) Unwrap() []error {
	errs := make([]error, len(f))
	for i, fault := range f {
		errs[i] = fault
	}
	return errs
}

func (f Faults) sort() {
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(
			cmp.Compare(envName(a.File), envName(b.File)),
			cmp.Compare(a.Line, b.Line),
		)
	})
}

func envName(file string) string {
	if name, ok := strings.CutPrefix(file, "env "); ok {
		return name
	}
	return ""
}

// DidYouMean returns `; did you mean "X"?` with the candidate that is nearest
// to word, or "" if none is near.
func DidYouMean(word string, candidates []string) string {
	best, distance := "", min(3, 1+len(word)/4)+1
	for _, candidate := range candidates {
		if d := editDistance(strings.ToLower(word), strings.ToLower(candidate)); d < distance {
			best, distance = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// editDistance is Levenshtein's, in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
