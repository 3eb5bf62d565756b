// Package demo shows the main job with nothing to install: callers push in
// bursts, two dispatchers share one bucket, and a receiver sees an even stream.
//
// All of it is in this process: the embedded store, the dispatchers, each with
// connections of its own as if it were a process of its own, and a receiver on
// a loopback port that the webhook worker calls. The [checker] judges.
package demo
