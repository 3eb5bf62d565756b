package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/tundish-io/tundish/internal/httpbound"
)

// Bounds of a connection. A request takes at most the store's timeout, so that
// only a slow client comes near them.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 20 * time.Second
	writeTimeout      = 40 * time.Second // counts from the end of the header
	maxHeaderBytes    = 16 << 10
)

// Listen listens on addr, a host and a port. key is the configuration key of addr, such as "producer.listen": the error names it.
func Listen(ctx context.Context, addr, key string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is taken: another process listens there; stop it or choose another address for %s: %w", addr, key, err)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %q, check %s: %w", addr, key, err)
	}
	return listener, nil
}

// Serve serves handler on listener until ctx ends. Then /readyz responds with 503, and the listener accepts no new connections. Requests under way have
// shutdownTimeout to end before they are cut off, which is an error. Serve closes the listener and leaves no goroutine behind.
func Serve(ctx context.Context, listener net.Listener, handler *Handler, shutdownTimeout time.Duration, log *slog.Logger) error {
	values := context.WithoutCancel(ctx) // requests outlive ctx
	limited := limitConnections(listener, handler.connections+spareConnections)
	server := &http.Server{
		Handler:           lingering(handler.draining, handler),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       cmp.Or(handler.idleTimeout, httpbound.DefaultIdleTimeout),
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(orDiscard(log).Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return values },
		ConnState:         limited.follow,
		ConnContext:       withConnection,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(limited) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", listener.Addr(), errors.Join(err, server.Close()))
	case <-ctx.Done():
	}
	handler.Drain()
	patience, cancel := context.WithTimeout(values, shutdownTimeout)
	defer cancel()
	err := server.Shutdown(patience)
	if err != nil {
		err = fmt.Errorf("requests on %s were cut off after %s: %w", listener.Addr(), shutdownTimeout, errors.Join(err, server.Close()))
	}
	<-served //nolint:errcheck // http.ErrServerClosed
	return err
}
