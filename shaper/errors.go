package shaper

import "errors"

// ErrClosed says that the client was closed before the call.
var ErrClosed = errors.New("shaper: the client is closed")

// ErrNotFound says that a bucket has no job of this id, and remembers none.
var ErrNotFound = errors.New("shaper: no such job")

// ErrTagChanged says that a bucket is in another pool, or in none, than the configuration of this process says.
// A dispatcher moves it: see dispatcher.Dispatcher.JoinPools.
var ErrTagChanged = errors.New("shaper: the bucket is in another pool than this configuration says")

// ErrMoves says that a bucket changes its pool once the deliveries under way have ended.
var ErrMoves = errors.New("shaper: the bucket moves to another pool once its deliveries have ended")

// ErrUnknownBucket says that no bucket of this name is configured.
var ErrUnknownBucket = errors.New("shaper: unknown bucket")

// ErrNotEnded says that a job has not ended yet, so that there is no result of it.
var ErrNotEnded = errors.New("shaper: the job has not ended")

// ErrNoResult says that a job has ended and that there is no result of it: the bucket keeps none, or not any more, or no dispatcher
// delivered it.
var ErrNoResult = errors.New("shaper: the job has no result")
