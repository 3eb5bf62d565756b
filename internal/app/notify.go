package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// notifier reports the state of the daemon to systemd, for a unit of Type=notify or notify-reload (sd_notify(3)). Without NOTIFY_SOCKET it sends
// nothing.
type notifier struct {
	socket string
	every  time.Duration // between two keep-alives; 0: systemd wants none
	log    *slog.Logger
}

// newNotifier reads the variables that systemd has set in the environment.
func newNotifier(environ []string, log *slog.Logger) *notifier {
	env := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	n := &notifier{socket: env["NOTIFY_SOCKET"], log: log}
	usec, err := strconv.ParseInt(env["WATCHDOG_USEC"], 10, 64)
	if pid := env["WATCHDOG_PID"]; err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.every = time.Duration(usec) * time.Microsecond / 2 //nolint:mnd // as its manual advises
	}
	return n
}

// send sends a state. If systemd misses one, its timeouts find out, so the daemon goes on.
func (n *notifier) send(ctx context.Context, state string) {
	if n == nil || n.socket == "" {
		return
	}
	name := n.socket
	if strings.HasPrefix(name, "@") {
		name = "\x00" + name[1:] // an abstract one
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		n.log.WarnContext(ctx, "systemd was not notified", "state", state, "error", err)
	}
}

// run reports that the daemon is ready, sends keep-alives, and reports that it stops when ctx ends. A keep-alive is about the process and not about
// Redis: a restart does not bring Redis back.
func (n *notifier) run(ctx context.Context) error {
	n.send(ctx, "READY=1")
	if n.every > 0 && n.socket != "" {
		alive := time.NewTicker(n.every)
		defer alive.Stop()
		for ctx.Err() == nil {
			select {
			case <-alive.C:
				n.send(ctx, "WATCHDOG=1")
			case <-ctx.Done():
			}
		}
	}
	<-ctx.Done()
	n.send(ctx, "STOPPING=1")
	return nil
}

// reloading reports that the configuration is read again; end reports that this is over.
func (n *notifier) reloading(ctx context.Context) (end func()) {
	var now unix.Timespec
	if n == nil || n.socket == "" || unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return func() {}
	}
	n.send(ctx, fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/int64(time.Microsecond)))
	return func() { n.send(ctx, "READY=1") }
}
