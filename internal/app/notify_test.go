package app

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/telemetry"
)

// systemd is a socket on which it listens.
func systemd(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func readState(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	text := make([]byte, 1000)
	n := must.Get(conn.Read(text))(t)
	return string(text[:n])
}

// systemd hears of a start, of signs of life, of a reload, and of the end.
func TestNotify(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("", "notify") // the name of a socket is short
	must.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	for _, name := range []string{filepath.Join(folder, "s"), "@" + folder} {
		bound := name
		if strings.HasPrefix(bound, "@") {
			bound = "\x00" + bound[1:]
		}
		conn := systemd(t, bound)
		log := telemetry.NewLogger("info", "text", t.Output())
		n := newNotifier([]string{"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=2000", "WATCHDOG_PID=" + strconv.Itoa(os.Getpid())}, log)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.run(ctx) }()
		must.Equal(t, readState(t, conn), "READY=1", "first")
		for range 3 {
			must.Equal(t, readState(t, conn), "WATCHDOG=1", "heard")
		}
		cancel()
		last := ""
		for last != "STOPPING=1" {
			last = readState(t, conn)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		go n.reloading(t.Context())()
		if text := readState(t, conn); !strings.HasPrefix(text, "RELOADING=1\nMONOTONIC_USEC=") {
			t.Errorf("%q", text)
		}
		must.Equal(t, readState(t, conn), "READY=1", "heard")
	}
}

// Who is not started by systemd tells nobody, and another process's watchdog is not fed.
func TestNotifyNobody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, env := range [][]string{nil, {"WATCHDOG_USEC=x"}, {"WATCHDOG_USEC=2000000", "WATCHDOG_PID=1"}, {"WATCHDOG_USEC=-5"}} {
		n := newNotifier(env, nil)
		if n.every != 0 || n.run(ctx) != nil {
			t.Errorf("%v: %+v", slices.Clone(env), n)
		}
		n.reloading(ctx)()
	}
	if n := newNotifier([]string{"WATCHDOG_USEC=3000000"}, nil); n.every != 1500*time.Millisecond {
		t.Error(n.every)
	}
	var none *notifier
	none.reloading(ctx)()
}
