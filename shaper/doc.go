// Package shaper turns uneven input into an even stream.
//
// This package is the vocabulary that three actors share, and opens no connection itself. The Client of package producer enqueues jobs into buckets:
// bounded queues that leak at a fixed rate. The Dispatcher of package dispatcher drains them. It claims jobs together with their slots (the instants
// at which they may depart), hands each to a [Worker] at its slot, and settles the outcome. Any number of dispatchers share a bucket and its rate.
// The Operator of package operator inspects buckets and changes them at run time.
//
// A job is in exactly one place at any instant: in a waiting list, in the set of jobs due later, leased to a dispatcher, or dead. Every move is one
// Lua script. Every script may be sent twice, so a lost reply neither loses nor doubles a job. Times are by the Redis server's clock.
//
//	scheduled ─► queued ─► in_flight ─► done
//	               ▲  ▲        │  └───► dead
//	               │  └────────┴─► retrying
//	               └─ redrive ◄── dead
//
// Costs: an enqueue is one round trip, shared with concurrent calls. A claim is one round trip for many jobs, and so is a settlement. When Redis is
// down, enqueue returns an error within its timeout, and dispatchers send only the jobs that they have claimed.
package shaper
