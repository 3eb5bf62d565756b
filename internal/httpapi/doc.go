// Package httpapi serves the HTTP APIs. The producer's API enqueues jobs and checks limits. The operator's API shows and changes buckets, flows, groups,
// pools, jobs and dead letters: on a port of its own, on the port of a producer, or as a [Local] in the process of a command.
//
// A request passes, in order:
//
//   - the guard, which refuses web pages of other origins and, without API keys, all but programs
//     of this machine;
//   - the routes, and with API keys the rights that the route needs (401, 403);
//   - the decoder, which reports every fault of a job at once;
//   - the client of package producer or the limiter of package admission, which decides.
//
// Responses are JSON, errors are problems of RFC 9457 with a code from a closed list. openapi.yaml is the contract, generated from the descriptions in
// *_operations.go and from openapi-by-hand.yaml. The tests validate every response against it.
package httpapi
