package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
)

// refusedBytes is more than the system buffers of a connection.
const refusedBytes = 12 << 20

// refusedBodies are requests whose body the producer does not read, and the status of each.
var refusedBodies = map[string]struct {
	path      string
	isChunked bool
	status    int
}{
	"too large":           {jobs, false, http.StatusRequestEntityTooLarge},
	"too large in chunks": {jobs, true, http.StatusRequestEntityTooLarge},
	"no such route":       {"/v1/nothing", false, http.StatusNotFound},
	"no such method":      {"/openapi.yaml", true, http.StatusMethodNotAllowed},
}

// listening serves a producer's API as the program does, and returns its address.
func listening(t *testing.T) string {
	t.Helper()
	listener := must.Get(httpapi.Listen(t.Context(), "127.0.0.1:0", "producer.listen"))(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	handler := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: &fake{bucket: buckets(t)[0]}, Logger: logTo(t.Output())})
	go func() { served <- httpapi.Serve(ctx, listener, handler, patience, nil) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// A client that sends its whole body before it reads gets the response, and no reset.
func TestRefusedBodiesGetTheirResponse(t *testing.T) {
	t.Parallel()
	addr, body := listening(t), bytes.Repeat([]byte("x"), refusedBytes)
	for name, c := range refusedBodies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if status, err := sendThenRead(addr, c.path, c.isChunked, body); err != nil || status != c.status {
						t.Errorf("%d, %v; want %d", status, err, c.status)
					}
				})
			}
			all.Wait()
		})
	}
}

// sendThenRead makes a request, and reads when it has sent everything.
func sendThenRead(addr, path string, isChunked bool, body []byte) (status int, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	length, end := fmt.Sprintf("Content-Length: %d", len(body)), ""
	if isChunked {
		length, end = "Transfer-Encoding: chunked", "\r\n0\r\n\r\n"
		body = append(fmt.Appendf(nil, "%x\r\n", len(body)), body...)
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%s\r\n\r\n", path, addr, length)
	for _, part := range [][]byte{[]byte(head), body, []byte(end)} {
		if _, err := conn.Write(part); err != nil {
			return 0, err
		}
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// refusedClients are programs that post the body at standard input to a URL, unchanged, and print the status.
var refusedClients = map[string][]string{
	"curl": {"curl", "-sS", "-o", os.DevNull, "-w", "%{http_code}", "-H", "Content-Type: application/json", "-H", "Expect:", "--data-binary", "@-"},
	"fetch of Node": {"node", "--input-type=module", "-e", `
		import { readFileSync } from 'node:fs'
		const response = await fetch(process.argv[1], { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: readFileSync(0) })
		await response.text()
		process.stdout.write(String(response.status))`, "--"},
	"http.client of Python": {"python3", "-c", `if True:
		import http.client, sys, urllib.parse
		url = urllib.parse.urlsplit(sys.argv[1])
		connection = http.client.HTTPConnection(url.netloc)
		connection.request('POST', url.path, sys.stdin.buffer.read(), {'Content-Type': 'application/json'})
		print(connection.getresponse().status, end='')`},
}

// Unchanged clients that are 50 ms away get the response to a body that was refused.
func TestRefusedBodiesOfFarClients(t *testing.T) {
	t.Parallel()
	url := "http://" + farFrom(t, listening(t)) + jobs
	body := filepath.Join(t.TempDir(), "body")
	must.OK(t, os.WriteFile(body, make([]byte, refusedBytes), 0o600))
	for name, command := range refusedClients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(command[0]); err != nil {
				must.Be(t, os.Getenv("CI"), "", "%s is not installed", command[0])
				t.Skipf("%s is not installed", command[0])
			}
			for range 4 {
				input := must.Get(os.Open(body))(t)
				cmd := exec.CommandContext(t.Context(), command[0], slices.Concat(command[1:], []string{url})...)
				cmd.Stdin = input
				got, err := cmd.CombinedOutput()
				_ = input.Close()
				if err != nil || string(got) != "413" {
					t.Errorf("%v: %s; want 413", err, got)
				}
			}
		})
	}
}

// farFrom is the address of a network path to a server. It holds 1 MiB a direction, each byte for 25 ms, and passes a reset on.
func farFrom(t *testing.T, server string) string {
	t.Helper()
	listener := must.Get(httpapi.Listen(t.Context(), "127.0.0.1:0", ""))(t)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				_ = near.Close()
				continue
			}
			end := sync.OnceFunc(func() {
				for _, conn := range []net.Conn{near, far} {
					_ = conn.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // it is one
					_ = conn.Close()
				}
			})
			all.Go(func() { defer end(); travel(far, near) })
			all.Go(func() { defer end(); travel(near, far) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); all.Wait() })
	return listener.Addr().String()
}

// travel passes bytes on until one side ends.
func travel(to io.Writer, from io.Reader) {
	type packet struct {
		bytes []byte
		due   <-chan time.Time
	}
	path, gone := make(chan packet, 64), make(chan struct{})
	go func() {
		defer close(path)
		for {
			bytes := make([]byte, 16<<10)
			n, err := from.Read(bytes)
			select {
			case path <- packet{bytes[:n], time.After(25 * time.Millisecond)}:
			case <-gone:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer close(gone)
	for next := range path {
		<-next.due
		if _, err := to.Write(next.bytes); err != nil {
			return
		}
	}
}

// A connection that lingers gives way to a new one, and keeps nobody out.
func TestLingeringConnectionsGiveWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		open := piped(t, httpapi.ProducerConfig{Jobs: &fake{bucket: buckets(t)[0]}, MaxConnections: 2})
		for n := range 200 {
			must.Be(t, (<-open(post(jobs, refusedBytes)).answers), http.StatusRequestEntityTooLarge, "request %d", n)
		}
		must.Equal(t, <-open(livez).answers, http.StatusOK, "the last one")
		must.Equal(t, time.Since(began), 0, "it took")
	})
}

// However slowly or fast the rest of a body arrives, the connection ends.
func TestLingeringEnds(t *testing.T) {
	t.Parallel()
	const closing = 500 * time.Millisecond // net/http waits for it before it closes
	for name, c := range map[string]struct {
		length int
		part   int
		took   time.Duration
	}{
		"slow":    {refusedBytes, 1, 20*time.Second + closing},
		"endless": {1 << 40, 1 << 20, 63*time.Second/10 + closing}, // 64 MiB, the first at once
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				it := piped(t, httpapi.ProducerConfig{Jobs: &fake{bucket: buckets(t)[0]}})(post(jobs, c.length))
				if got := <-it.answers; got != http.StatusRequestEntityTooLarge {
					t.Fatal(got)
				}
				began, part := time.Now(), strings.Repeat("x", c.part)
				for tick := time.NewTicker(100 * time.Millisecond); ; <-tick.C {
					if _, err := io.WriteString(it, part); err != nil {
						tick.Stop()
						break
					}
				}
				must.Equal(t, time.Since(began), c.took, "closed after")
			})
		})
	}
}

// A stop does not wait for bodies that were refused, and ends without an error.
func TestLingeringEndsAtAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipes{make(chan net.Conn), make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error)
		go func() {
			served <- httpapi.Serve(ctx, p, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: &fake{bucket: buckets(t)[0]}}), time.Minute, nil)
		}()
		ours, theirs := net.Pipe()
		defer ours.Close()
		p.conns <- theirs
		_, _ = io.WriteString(ours, post(jobs, refusedBytes))
		response, err := http.ReadResponse(bufio.NewReader(ours), nil)
		must.OK(t, err)
		_ = response.Body.Close()
		synctest.Wait()
		stop()
		began := time.Now()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the stop took %s", took)
		}
	})
}
