package httpapi

import "context"

// draining says that the server stops.
type draining struct {
	ends  context.Context //nolint:containedctx // of requests that wait for something slow
	begin context.CancelFunc
}

func newDraining() *draining {
	d := new(draining)
	d.ends, d.begin = context.WithCancel(context.Background())
	return d
}

func (d *draining) begun() bool { return d.ends.Err() != nil }
