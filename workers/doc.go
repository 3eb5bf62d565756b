// Package workers holds the delivery policy that all kinds of workers share. [Policy.Judge] returns the outcome of an attempt by its response, and
// [ClassifyError] by its error. [Guard] bounds the addresses that may be called. [Snippet] and [RedactURL] make texts fit for people. All are functions
// of their arguments: no I/O, no clock, no state. Each kind of worker is a sub-package.
package workers
