package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/console"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/fleet"
)

const (
	consoleAddress = "127.0.0.1:8081" // the dispatcher's address; another port if this one is taken
	consoleEnd     = 2 * time.Second  // time for requests when the demo ends
)

// stay continues the bursts, and serves the console, whose address it prints, until ctx ends.
func (s *stage) stay(ctx context.Context, stdout io.Writer) error {
	handler, err := s.console()
	if err != nil {
		return err
	}
	producer, err := fleet.NewMember(fleet.Config{
		Redis: s.redis, Timeout: storeTime, Registerer: s.counts, Buckets: func() []string { return []string{bucketName} },
		About: func() fleet.About { return fleet.About{Name: "producer", Version: s.opts.Version} },
	})
	if err != nil {
		return fmt.Errorf("join the fleet: %w", err)
	}
	listener, err := listenForConsole(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "\nThe bursts go on. See them at http://%s%sbuckets/%s\nCtrl-C ends the demo.\n", listener.Addr(), console.Path, url.PathEscape(bucketName))
	if err != nil {
		return errors.Join(fmt.Errorf("write where the console is: %w", err), listener.Close())
	}
	staying, ctx := errgroup.WithContext(ctx)
	staying.Go(func() error { return httpapi.Serve(ctx, listener, handler, consoleEnd, nil) })
	staying.Go(func() error {
		producer.Run(ctx)
		return nil
	})
	staying.Go(func() error {
		s.push(ctx)
		return nil
	})
	return staying.Wait() //nolint:wrapcheck // it says what it is about
}

// console is the operator's API with its pages, for programs of this machine.
func (s *stage) console() (*httpapi.Handler, error) {
	limits, err := admission.NewLimiter(admission.LimiterConfig{Redis: s.redis, Timeout: storeTime, Limits: s.bucket.Limits})
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it is about
	}
	s.onClose(limits.Close)
	log := slog.New(slog.DiscardHandler)
	return httpapi.NewOps(httpapi.OpsConfig{
		Buckets: s.operator, Limits: limits, BucketLimits: s.client, Pools: []shaper.Pool{}, Logger: log,
		Pages: console.Pages(console.Config{Redis: s.redis, Name: "demo", Version: s.opts.Version, Logger: log, Audit: s.operator.Audit()}),
	}), nil
}

// listenForConsole listens on the dispatcher's address, or on any free port if a dispatcher has it.
func listenForConsole(ctx context.Context) (net.Listener, error) {
	listener, err := httpapi.Listen(ctx, consoleAddress, "the console")
	if errors.Is(err, syscall.EADDRINUSE) {
		listener, err = httpapi.Listen(ctx, loopback, "the console")
	}
	if err != nil {
		return nil, fmt.Errorf("start the console: %w", err)
	}
	return listener, nil
}
