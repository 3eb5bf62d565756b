package app

import (
	"context"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/telemetry"
)

// sinkShutdownTimeout is how long a stop of the sink waits for its responses.
const sinkShutdownTimeout = 5 * time.Second

// Sink receives requests on an address, responds with 200 and logs them, until ctx ends. It is no daemon of Tundish and needs no Redis. It uses only
// [log] of the configuration.
func Sink(ctx context.Context, o Options, address string) error {
	cfg, err := (&source{options: o.Config}).load(true)
	if err != nil {
		return err
	}
	log := telemetry.NewLogger(cfg.Log.Level, cfg.Log.Format, o.Stderr)
	listener, err := httpapi.Listen(ctx, address, "--listen")
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "sink receives", "url", "http://"+listener.Addr().String()+"/")
	return httpapi.Serve(ctx, listener, httpapi.NewSink(log), sinkShutdownTimeout, log)
}
