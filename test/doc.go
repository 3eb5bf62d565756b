// Package test holds the tests of the whole system: the real programs as
// processes of their own, a real Redis, and a receiver that logs every arrival.
// They hold the promises of the README against what arrives. Benchmarks
// against peers are in the folder bench.
package test
