// Package soak holds the long tests of the whole system, which `make soak` runs: they have the build tag soak, and measure times
// too, with figures. Most of them run one after the other. Those that are parallel, which run behind all others, are
// in the time of a bubble, or nothing in them is held to how long it takes.
package soak
