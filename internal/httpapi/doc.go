// Package httpapi serves the HTTP APIs: that of the producer, by which jobs
// come in and limits are asked, and that of the operator, by which buckets are
// looked at.
//
// A request passes, in order: the guard, which keeps web pages of other origins
// out and, as long as there are no API keys, everybody but programs of this
// machine; the routes; where there are keys, the rights that the route needs
// (401, 403); the decoder, which reports every fault of a job at once; and the
// client of package shaper or the limiter of package admission, which decides.
// Answers are JSON, errors are problems of RFC 9457 with a code from a closed
// list. openapi.yaml is the contract, and a test holds routes and codes to it.
package httpapi
