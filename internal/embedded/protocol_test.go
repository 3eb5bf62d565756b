package embedded_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/internal/must"
)

// TestProtocolErrors sends requests that are none: each is answered with an error and ends its connection, and the store goes on.
func TestProtocolErrors(t *testing.T) {
	t.Parallel()
	store := start(t)
	other := connect(t, store.URL())
	for _, row := range []struct{ name, request, want string }{
		{"no arguments", "*0\r\n", "-ERR Protocol error: invalid length"},
		{"fewer than none", "*-1\r\n", "-ERR Protocol error: invalid length"},
		{"more arguments than Redis takes", "*1048577\r\n", "-ERR Protocol error: invalid length"},
		{"an argument that no memory holds", "*1\r\n$9223372036854775807\r\n", "-ERR Protocol error: invalid length"},
		{"an argument of more than 512 MiB", "*1\r\n$536870913\r\n", "-ERR Protocol error: invalid length"},
		{"an argument shorter than empty", "*1\r\n$-1\r\n", "-ERR Protocol error: invalid length"},
		{"no number", "*x\r\n", "-ERR Protocol error: invalid length"},
		{"no length", "*\r\n", "-ERR Protocol error: invalid length"},
		{"an empty line", "\r\n", "-ERR Protocol error: expected '*', got '\\r'"},
		{"no carriage return", "*10\n", "-ERR Protocol error: invalid length"},
		{"a web request", "POST / HTTP/1.1\r\n", "-ERR Protocol error: expected '*', got 'P'"},
		{"an argument of another kind", "*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'"},
		{"a line without an end", strings.Repeat("*", 4096), "-ERR Protocol error: too big a line"},
		{"after a request", "*1\r\n$4\r\nPING\r\n*0\r\n", "-ERR Protocol error: invalid length"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := exchange(t, store, row.request)
			if !strings.Contains(got, row.want+"\r\n") {
				t.Errorf("answered %q, want %q", got, row.want)
			}
			if err := other.Ping(t.Context()).Err(); err != nil {
				t.Errorf("another client: %v", err)
			}
		})
	}
}

// exchange sends a request and returns what is answered until the connection ends.
func exchange(t *testing.T, store *embedded.Store, request string) string {
	t.Helper()
	conn := must.Get(net.Dial("tcp", store.Addr()))(t)
	defer conn.Close()
	must.Get(io.Copy(conn, iotest.OneByteReader(strings.NewReader(request))))(t)
	answer := must.Get(io.ReadAll(conn))(t)
	return string(answer)
}

// TestLargeArgument stores what has ends of lines and bytes of the protocol in it, over several reads.
func TestLargeArgument(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t).URL())
	value := bytes.Repeat([]byte("*0\r\n$-1\r\n"), 300_000)
	must.OK(t, client.Set(t.Context(), "key", value, 0).Err())
	must.OK(t, client.Set(t.Context(), "empty", "", 0).Err())
	if got, err := client.Get(t.Context(), "key").Bytes(); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%d bytes come back, %v", len(got), err)
	}
}
