//go:build soak

package admission

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
)

// sockets returns both ends of a connection, of which the first one polls.
func sockets(t *testing.T, most time.Duration) (*pollConn, *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = near.Close() // a test may have closed it
		_ = far.Close()
	})
	c, ok := pollFor(near, most).(*pollConn)
	if !ok {
		t.Skip("sockets cannot be polled here")
	}
	return c, far.(*net.TCPConn)
}

// threads sets how many threads of Go there are.
func threads(t *testing.T, n int) {
	was := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })
}

// A connection that polls reads what a socket reads, and fails as it does.
// It is not parallel, because polling is counted for the whole process.
func TestPolledConnectionReadsAsASocket(t *testing.T) {
	threads(t, minThreads)
	c, far := sockets(t, time.Millisecond)
	b := make([]byte, 4)
	read := func(want string) {
		t.Helper()
		if n, err := c.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("%q, %v; want %q", b[:n], err, want)
		}
	}
	write := func(text string) {
		t.Helper()
		if _, err := far.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 { // polled and not
		write("abcdef")
		read("abcd")
		read("ef")
	}
	if err := c.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	write("late")
	if n, err := c.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !Unavailable(err) {
		t.Fatalf("after the deadline: %d, %v", n, err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	read("late")
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if n, err := c.Read(b); n != 0 || !errors.Is(err, io.EOF) {
			t.Fatalf("after the end: %d, %v", n, err)
		}
	}
	_ = c.Close()
	if n, err := c.Read(b); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Fatalf("closed: %d, %v", n, err)
	}
	c, far = sockets(t, time.Millisecond)
	_ = far.SetLinger(0) // so that closing resets the connection
	_ = far.Close()
	if n, err := c.Read(b); n != 0 || !Unavailable(err) {
		t.Fatalf("reset: %d, %v", n, err)
	}
}

// Where replies take long, polling stops nearly altogether; where they come soon
// again, it comes back.
func TestPollingStopsWhereItDoesNotPay(t *testing.T) {
	threads(t, minThreads)
	c, far := sockets(t, time.Microsecond)
	b := make([]byte, 1)
	polled := func() bool {
		t.Helper()
		before := c.unpolled
		if err := c.SetReadDeadline(time.Now().Add(200 * time.Microsecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		return before == 0
	}
	for _, pause := range []int{1, 3, 7, 15, 31, 63, 127, 255, 255} {
		if !polled() {
			t.Fatalf("before a pause of %d nothing is polled", pause)
		}
		for n := range pause {
			if polled() {
				t.Fatalf("reply %d of %d is polled for", n, pause)
			}
		}
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	c.most = time.Second
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(b); err != nil || c.pause != 0 {
		t.Fatalf("%v, a pause of %d after a reply in time", err, c.pause)
	}
}

// No more than half of the threads poll, and none of a few.
func TestPollingLeavesThreads(t *testing.T) {
	for name, test := range map[string]struct {
		threads int
		others  int64
		polls   bool
	}{
		"alone":           {minThreads, 0, true},
		"beside one":      {minThreads, minThreads/2 - 1, true},
		"beside the half": {minThreads, minThreads / 2, false},
		"few threads":     {minThreads - 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			threads(t, test.threads)
			c, _ := sockets(t, time.Microsecond)
			polling.Add(test.others)
			defer polling.Add(-test.others)
			if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			if polls := c.pause > 0; polls != test.polls || polling.Load() != test.others {
				t.Errorf("it polled: %t; %d poll now, want %d", polls, polling.Load(), test.others)
			}
		})
	}
}

// Clients of all kinds poll, unless that is switched off; what is no socket does
// not.
func TestClientsPoll(t *testing.T) {
	threads(t, minThreads)
	if end, other := net.Pipe(); pollFor(end, time.Second) != end {
		t.Error("a pipe polls")
	} else {
		_, _ = end.Close(), other.Close()
	}
	server := redistest.Start(t)
	for name, test := range map[string]struct {
		url   string
		poll  time.Duration
		polls bool
	}{
		"by itself": {server.URL(), 0, true},
		"wanted":    {server.URL(), time.Millisecond, true},
		"too long":  {server.URL(), time.Hour, true},
		"off":       {server.URL(), -1, false},
		"cluster":   {redistest.StartCluster(t).URL(), 0, true},
		"sentinels": {redistest.StartSentinel(t).URL(), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := Connect(test.url, ConnectOptions{BusyPoll: test.poll})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			// Who polls is seen by chance: it is asked until he is.
			var over atomic.Bool
			var asked atomic.Int64
			var all sync.WaitGroup
			all.Go(func() {
				for !over.Load() {
					if err := client.Set(t.Context(), "key", 1, 0).Err(); err != nil {
						t.Error(err)
						return
					}
					asked.Add(1)
				}
			})
			polls := false
			for deadline := time.Now().Add(30 * time.Second); !polls && time.Now().Before(deadline) && (test.polls || asked.Load() < 300); {
				polls = polling.Load() > 0
			}
			over.Store(true)
			all.Wait()
			if polls != test.polls {
				t.Errorf("it polls: %t, of %d calls", polls, asked.Load())
			}
		})
	}
}
