package app

import (
	"context"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
)

// sinkShutdownTimeout is how long a stop of the sink waits for deliveries that it answers.
const sinkShutdownTimeout = 5 * time.Second

// Sink receives requests on an address, answers 200 and logs them, until ctx ends. It is no daemon of Tundish, and needs no Redis.
func Sink(ctx context.Context, o Options, address string) error {
	_, _, log, err := o.open()
	if err != nil {
		return err
	}
	listener, err := httpapi.Listen(ctx, address, "--listen")
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "sink receives", "url", "http://"+listener.Addr().String()+"/")
	return httpapi.Serve(ctx, listener, httpapi.NewSink(log), sinkShutdownTimeout, log)
}
