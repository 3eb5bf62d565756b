package shaper

import "errors"

// ErrClosed is returned if the client was closed before the call.
var ErrClosed = errors.New("shaper: the client is closed")

// ErrNotFound is returned if a bucket neither has a job of this id nor remembers one.
var ErrNotFound = errors.New("shaper: no such job")

// ErrTagChanged is returned if a bucket is in another pool than in this process's configuration. A dispatcher moves it: see
// dispatcher.Dispatcher.JoinPools.
var ErrTagChanged = errors.New("shaper: the bucket is in another pool than this configuration says")

// ErrMoves is returned while a bucket waits for its deliveries under way to change its pool.
var ErrMoves = errors.New("shaper: the bucket moves to another pool once its deliveries have ended")

// ErrUnknownBucket is returned if no bucket of this name is configured.
var ErrUnknownBucket = errors.New("shaper: unknown bucket")

// ErrNotEnded is returned if a job has not ended yet, so it has no result.
var ErrNotEnded = errors.New("shaper: the job has not ended")

// ErrNoResult is returned if a job has ended and its result is not available: the bucket keeps none, or no longer, or no dispatcher delivered the
// job.
var ErrNoResult = errors.New("shaper: the job has no result")
