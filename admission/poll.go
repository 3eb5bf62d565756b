package admission

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// DefaultBusyPoll is how long a reply of Redis is polled for where no other time
// is given.
const DefaultBusyPoll = 100 * time.Microsecond

// MaxBusyPoll is the longest time for which a reply is polled for: whoever polls
// does not look at the deadline of the call.
const MaxBusyPoll = time.Millisecond

// minThreads is how many threads of Go there are at least where somebody polls.
// With two, the other one and Redis want what a poller takes: 64 callers got
// 230,000 decisions a second there, and 430,000 without.
const minThreads = 4

// maxUnpolled is how many replies in a row are waited for without polling, at
// most, where polling does not pay.
const maxUnpolled = 255

// polling is how many goroutines of this process poll for a reply now.
var polling atomic.Int64

// busyPoll has the connections of a client poll: where Redis is near, its reply
// is there before a thread has gone to sleep and was woken again, which takes
// longer than Redis does (measured on a virtual machine: 81 µs for a decision,
// and 39 µs with polling, for the same processor time). It is what SO_BUSY_POLL
// is for a network card, and is bounded thus:
//
//   - At most half of the threads of Go (GOMAXPROCS) poll at a time, and none if
//     there are fewer than four.
//   - Who polls beside another lets other goroutines run between two looks.
//   - A connection on which polling was in vain does not poll for the next
//     reply, then for the next 3, 7 and so on up to 255: where Redis is far or
//     busy, and while a subscription waits, it costs nothing that can be measured.
type busyPoll time.Duration

// DialHook implements [redis.Hook]. Only connections that are plain sockets poll:
// one with TLS does not.
func (most busyPoll) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return pollFor(conn, time.Duration(most)), nil
	}
}

// ProcessHook implements [redis.Hook].
func (busyPoll) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (busyPoll) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// pollConn is a socket whose Read polls before it sleeps. As of any connection
// of go-redis, one goroutine reads at a time.
type pollConn struct {
	net.Conn
	socket syscall.RawConn
	most   time.Duration

	unpolled int // replies that are still to be waited for without polling
	pause    int // what unpolled was set to last

	look  func(fd uintptr) bool // made once, as it would be garbage of each call
	into  []byte
	n     int
	err   error
	until time.Time
}

// pollFor returns conn as one that polls, if it is a socket that can be.
func pollFor(conn net.Conn, most time.Duration) net.Conn {
	of, ok := conn.(syscall.Conn)
	if !ok || !canPoll {
		return conn
	}
	socket, err := of.SyscallConn()
	if err != nil {
		return conn
	}
	c := &pollConn{Conn: conn, socket: socket, most: most}
	c.look = c.lookAt
	return c
}

// SyscallConn lets go-redis see whether a connection that was idle is still good.
func (c *pollConn) SyscallConn() (syscall.RawConn, error) { return c.socket, nil }

// Read implements [net.Conn].
func (c *pollConn) Read(b []byte) (int, error) {
	if c.unpolled > 0 {
		c.unpolled--
		return c.Conn.Read(b)
	}
	threads := runtime.GOMAXPROCS(0)
	if threads < minThreads {
		return c.Conn.Read(b)
	}
	if polling.Add(1) > int64(threads/2) {
		polling.Add(-1)
		return c.Conn.Read(b)
	}
	n, ok := c.poll(b)
	polling.Add(-1)
	if ok {
		c.pause = 0
		return n, nil
	}
	c.pause = min(2*c.pause+1, maxUnpolled)
	c.unpolled = c.pause
	return c.Conn.Read(b)
}

// poll reads what comes soon. Where that is nothing, the end or an error, Read of
// the socket itself has yet to say so.
func (c *pollConn) poll(b []byte) (n int, ok bool) {
	c.into, c.until = b, time.Now().Add(c.most)
	for {
		c.n, c.err = 0, nil
		if err := c.socket.Read(c.look); err != nil {
			break // closed, or past its deadline
		}
		if c.n > 0 || !again(c.err) || time.Now().After(c.until) {
			break
		}
		runtime.Gosched()
	}
	c.into = nil
	return c.n, c.n > 0
}

// lookAt looks until there is something, time is up, or somebody else polls too.
// It always says that it is done, for Go would sleep otherwise.
func (c *pollConn) lookAt(fd uintptr) bool {
	for {
		c.n, c.err = readNow(fd, c.into)
		if !again(c.err) || polling.Load() > 1 || time.Now().After(c.until) {
			return true
		}
	}
}
