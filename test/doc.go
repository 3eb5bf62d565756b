// Package test holds the tests of the whole system: the real programs as
// processes of their own, a real Redis, and a receiver that logs every arrival.
// They hold the promises of the README against what arrives: the rate in rate_test.go, that nothing is lost in nothing_lost_test.go, the bound
// of a queue in bound_test.go, limits in admission_test.go, one job for an id in same_id_test.go, and all of them under random
// operations in random_test.go. What starts and watches the system is in the folder harness, long measurements are in soak, and
// benchmarks against peers in bench.
//
// These are for `make test`. They hold each promise once, on any machine:
// slots, which Redis gives, are held to the rate exactly; what the receiver sees is judged by
// counts and order, and never by how long it took. Three files with the build tag soak run a promise for longer.
package test
