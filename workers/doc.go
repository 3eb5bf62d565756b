// Package workers holds the delivery policy that all kinds of workers share. [Policy.Classify] decides by an answer
// how an attempt ended, and [ClassifyError] decides it by an error. [Guard] bounds the addresses that may be called.
// [Snippet] and [RedactURL] make texts fit for people. All are functions of their arguments: no I/O, no clock, no state.
// Each kind of worker is a sub-package.
package workers
