// Package test holds the tests of the whole system: the real programs as
// processes of their own, a real Redis, and a receiver that logs every arrival.
// They hold the promises of the README against what arrives. Benchmarks
// against peers are in the folder bench.
//
// Most of them measure time and run one after the other. Those that are parallel, which
// run behind all others, do not: they are in the time of a bubble, or nothing in them is
// held to how long it takes.
package test
