// Package test holds the tests of the whole system: the real programs as
// processes of their own, a real Redis, and a receiver that logs every arrival.
// They hold the promises of the README against what arrives. Benchmarks
// against peers are in the folder bench.
//
// Files without a build tag are for `make test`. They hold each promise once, on any machine:
// slots, which Redis gives, are held to the rate exactly; what the receiver sees is judged by
// counts and order, and never by how long it took.
//
// Files with the build tag soak are for `make soak`: they measure times too, with figures. Most
// of them run one after the other. Those that are parallel, which run behind all others, are
// in the time of a bubble, or nothing in them is held to how long it takes.
package test
