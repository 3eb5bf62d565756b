// Package workers holds the delivery policy that all kinds of workers share:
// what an answer or an error means for a job ([Classify], [ClassifyError]),
// how long a receiver asked to wait ([ParseRetryAfter]), which addresses may be
// called at all ([Guard]), and what of it people may see ([Snippet],
// [RedactURL]). All are functions of their arguments: no I/O, no clock, no
// state. Each kind is a sub-package.
package workers
