package faultproxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/faultproxy"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

// setUp returns a proxy, a client that goes through it and one that does not.
func setUp(t *testing.T) (proxy *faultproxy.Proxy, through, direct *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	proxy = must.Get(faultproxy.New(server.Addr()))(t)
	through = redis.NewClient(&redis.Options{
		Addr:                     proxy.Addr(),
		MaxRetries:               -1,
		ContextTimeoutEnabled:    true,
		ReadTimeout:              10 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		through.Close()
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	must.OK(t, through.Ping(t.Context()).Err())
	return proxy, through, server.Client()
}

func TestDropReply(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		delay time.Duration
		value string
	}{
		"small":            {0, "v"},
		"delayed":          {20 * time.Millisecond, "v"},
		"in many chunks":   {0, strings.Repeat("v", 4<<20)},
		"many and delayed": {20 * time.Millisecond, strings.Repeat("v", 4<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, through, direct := setUp(t)
			proxy.SetDelay(test.delay)
			// Sent before the drop is asked for, so it must not count.
			must.OK(t, through.Append(t.Context(), "key", "").Err())
			dropped := proxy.DropReply("append")
			if err := through.Ping(t.Context()).Err(); err != nil {
				t.Errorf("Ping, which does not match: %v", err)
			}
			if err := through.Append(t.Context(), "key", test.value).Err(); !errors.Is(err, io.EOF) {
				t.Errorf("Append = %v, want EOF", err)
			}
			await(t, dropped)
			if n, err := direct.StrLen(t.Context(), "key").Result(); err != nil || int(n) != len(test.value) {
				t.Errorf("StrLen = %d, %v; want %d: the effect has happened", n, err, len(test.value))
			}
			if err := through.Append(t.Context(), "key", "w").Err(); err != nil {
				t.Errorf("the next Append: %v", err)
			}
		})
	}
}

func TestDropReplyOfAPipeline(t *testing.T) {
	t.Parallel()
	proxy, through, direct := setUp(t)
	dropped := proxy.DropReply("last")
	const n = 20_000
	_, err := through.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for range n - 1 {
			pipe.Incr(t.Context(), "count")
		}
		pipe.Eval(t.Context(), "return redis.call('INCR', KEYS[1]) -- last", []string{"count"})
		return nil
	})
	if err == nil {
		t.Error("the pipeline has no error")
	}
	await(t, dropped)
	if got, err := direct.Get(t.Context(), "count").Int(); err != nil || got != n {
		t.Errorf("count = %d, %v; want %d", got, err, n)
	}
}

// Two drops lose two replies, whatever the order of the requests.
func TestDropReplyTwice(t *testing.T) {
	t.Parallel()
	proxy, through, direct := setUp(t)
	one, two := proxy.DropReply("one"), proxy.DropReply("two")
	for _, key := range []string{"two", "three", "one"} {
		if err := through.Set(t.Context(), key, 1, 0).Err(); (err == nil) != (key == "three") {
			t.Errorf("Set %s = %v", key, err)
		}
	}
	await(t, one)
	await(t, two)
	must.Equal(t, must.Get(direct.DBSize(t.Context()).Result())(t), 3, "DBSize")
}

// A match that begins in one write and ends in the next is seen.
func TestDropReplyAcrossChunks(t *testing.T) {
	t.Parallel()
	proxy, _, _ := setUp(t)
	conn := must.Get(net.Dial("tcp", proxy.Addr()))(t)
	defer conn.Close()
	dropped := proxy.DropReply("PING\r\nECHO")
	exchange := func(request, want string) {
		t.Helper()
		must.Get(io.WriteString(conn, request))(t)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
			t.Errorf("%q answers %q, %v; want %q", request, got, err, want)
		}
	}
	exchange("PING\r\nPING\r\n", "+PONG\r\n+PONG\r\n")
	must.Get(io.WriteString(conn, "ECHO hello\r\n"))(t)
	if rest, err := io.ReadAll(conn); err != nil || len(rest) != 0 {
		t.Errorf("after the drop: %q, %v; want EOF", rest, err)
	}
	await(t, dropped)
}

// A hundred round trips one after the other take a hundred delays; a hundred
// at the same time, and a long pipeline of many chunks, take about one.
func TestDelayKeepsThroughput(t *testing.T) {
	t.Parallel()
	proxy, through, _ := setUp(t)
	const roundTrip = 100 * time.Millisecond
	proxy.SetDelay(roundTrip)

	begin := time.Now()
	for range 3 {
		must.OK(t, through.Ping(t.Context()).Err())
	}
	if took := time.Since(begin); took < 3*roundTrip {
		t.Errorf("3 round trips took %s, want at least %s", took, 3*roundTrip)
	}

	conn, err := net.Dial("tcp", proxy.Addr())
	must.OK(t, err)
	defer conn.Close()
	const chunks = 2000
	begin = time.Now()
	var sending sync.WaitGroup
	sending.Go(func() {
		for range chunks {
			if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
				t.Error(err)
				return
			}
		}
	})
	want := bytes.Repeat([]byte("+PONG\r\n"), chunks)
	got := make([]byte, len(want))
	_, err = io.ReadFull(conn, got)
	took := time.Since(begin)
	sending.Wait()
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("replies are not what Redis sent: %v", err)
	}
	if took < roundTrip || took > 20*roundTrip {
		t.Errorf("%d pipelined requests took %s, want little more than %s", chunks, took, roundTrip)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	t.Parallel()
	proxy, through, direct := setUp(t)
	proxy.Freeze()
	proxy.Freeze() // a second time changes nothing
	for range 2 {  // on the connection that exists, then on a new one
		short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if err := through.Incr(short, "count").Err(); !isTimeout(err) {
			t.Errorf("frozen: Incr = %v, want a timeout", err)
		}
		cancel()
	}
	must.Equal(t, must.Get(direct.Exists(t.Context(), "count").Result())(t), 0, "frozen: Exists")

	answer := make(chan error, 1)
	go func() { answer <- through.Ping(t.Context()).Err() }()
	proxy.Thaw()
	proxy.Thaw()
	if err := <-answer; err != nil {
		t.Errorf("thawed: Ping = %v", err)
	}
}

func TestCutAll(t *testing.T) {
	t.Parallel()
	proxy, through, _ := setUp(t)
	proxy.Freeze() // so that the request is under way when it is cut
	answer := make(chan error, 1)
	go func() { answer <- through.BLPop(t.Context(), time.Minute, "list").Err() }()
	for err := error(nil); err == nil; { // until the request's connection is cut
		proxy.CutAll()
		select {
		case err = <-answer:
			if errors.Is(err, redis.Nil) {
				t.Errorf("cut: BLPop = %v, want an error of the connection", err)
			}
		default:
		}
	}
	proxy.Thaw()
	if err := through.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after the cut: Ping = %v", err)
	}
}

func TestServerIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := must.Get(faultproxy.New(server.Addr()))(t)
	defer proxy.Close()
	server.Kill()
	if err := ask(proxy.Addr()); err == nil {
		t.Error("an answer without a server")
	}
	must.OK(t, server.Restart())
	if err := ask(proxy.Addr()); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

// ask sends a PING and returns an error unless a PONG comes back.
func ask(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, len("+PONG\r\n")))
	return err
}

func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("the reply has not been dropped")
	}
}
