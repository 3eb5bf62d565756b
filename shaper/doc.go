// Package shaper turns uneven input into an even stream.
//
// This package is the vocabulary that three actors share, and opens no connection itself. The Client of
// package producer enqueues jobs into buckets: bounded queues that leak at a fixed rate. The
// Dispatcher of package dispatcher drains them. It claims jobs together with their slots (the instants
// at which they may depart), hands each to a [Worker] at its slot, and settles the outcome. Any number of
// dispatchers share a bucket, and the rate is that of all of them together. The Operator of package
// operator looks at buckets and changes them while programs run.
//
// A job is in exactly one place at any instant: in a waiting list, in the set
// of jobs due later, leased to a dispatcher, or dead. Every move is one Lua
// script, and every script may be sent twice, so that a lost reply loses
// nothing and doubles nothing. The times are the Redis server's.
//
//	scheduled ─► queued ─► in_flight ─► done
//	               ▲  ▲        │  └───► dead
//	               │  └────────┴─► retrying
//	               └─ redrive ◄── dead
//
// What it costs: an enqueue is one round trip and shares it with other calls
// of the moment; a claim is one round trip for many jobs; so is a settle.
// When Redis is down, enqueue returns an error within its timeout,
// and dispatchers send nothing but what they had claimed.
package shaper
