// Package embedded is the store for trying things out: a Redis inside the
// process, so that the quick start needs nothing installed.
package embedded

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/alicebob/miniredis/v2"
)

// Store is an in-process Redis (miniredis) on a TCP port, so that a producer and a dispatcher on one machine can share it. It keeps everything in
// memory: all data is lost when the process ends. It has no password, no replicas and a fraction of the speed of Redis. Use it to try things out and to
// test Go code, never for jobs that matter.
type Store struct {
	server   *miniredis.Miniredis
	listener net.Listener
	accepts  sync.WaitGroup
	close    sync.Once
}

// Start listens on addr, a host and a port. Port 0 chooses a free one, which [Store.Addr] returns. Listen on a loopback address: every program that
// reaches the port may read and change everything.
func Start(addr string) (*Store, error) {
	listener, err := net.Listen("tcp", addr) //nolint:noctx // listening on an address takes no time
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("embedded: %s is taken: another process, probably one with an embedded store, already listens there; "+
				"stop it or choose another address for redis.embedded_listen: %w", addr, err)
		}
		return nil, fmt.Errorf("embedded: cannot listen on %q, check redis.embedded_listen: %w", addr, err)
	}
	s := &Store{server: miniredis.NewMiniRedis(), listener: listener}
	s.server.ClockTTL(true)       // otherwise keys never expire
	first, err := s.server.Dial() // starts it without a listener of its own
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded: %w", err), listener.Close())
	}
	_ = first.Close()
	s.accepts.Go(s.accept)
	return s, nil
}

func (s *Store) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.server.Server().ServeConn(newCheckedConn(conn))
	}
}

// Addr returns the host and port on which the store listens.
func (s *Store) Addr() string { return s.listener.Addr().String() }

// URL returns the address as redis://host:port.
func (s *Store) URL() string { return "redis://" + s.Addr() }

// Close stops the store and drops its data. Closing twice is harmless.
func (s *Store) Close() {
	s.close.Do(func() {
		_ = s.listener.Close()
		s.accepts.Wait()
		s.server.Close()
	})
}
