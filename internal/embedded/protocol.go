package embedded

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
)

// Bounds of Redis for one request.
const (
	maxArguments = 1 << 20
	maxArgument  = 512 << 20 // bytes
)

// checkedConn passes requests to miniredis only if they follow the protocol of Redis: miniredis panics at a request without arguments and at a length
// that no memory can hold. The reply to a fault is an error, and the connection ends.
type checkedConn struct {
	net.Conn
	in        *bufio.Reader
	head      []byte // the rest of a checked line, which is passed on first
	body      int    // bytes of an argument that follow
	arguments int    // that follow in this request
}

func newCheckedConn(conn net.Conn) *checkedConn {
	return &checkedConn{Conn: conn, in: bufio.NewReader(conn)}
}

// protocolError is a fault of the client.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// Read implements [net.Conn].
func (c *checkedConn) Read(p []byte) (int, error) {
	if len(c.head) == 0 && c.body == 0 {
		if err := c.readHead(); err != nil {
			if fault, ok := err.(protocolError); ok { //nolint:errorlint // readHead makes it
				fmt.Fprintf(c.Conn, "-ERR %v\r\n", fault) // the connection ends in any case
			}
			return 0, err
		}
	}
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	n, err := c.in.Read(p[:min(len(p), c.body)])
	c.body -= n
	return n, err
}

// readHead reads the line before a request or an argument: its kind and its length.
func (c *checkedConn) readHead() error {
	line, err := c.in.ReadSlice('\n')
	if err == bufio.ErrBufferFull { //nolint:errorlint // bufio returns it as it is
		return protocolError("too big a line")
	}
	if err != nil {
		return err
	}
	kind, least, most := byte('*'), 1, maxArguments
	if c.arguments > 0 {
		kind, least, most = '$', 0, maxArgument
	}
	if line[0] != kind {
		return protocolError(fmt.Sprintf("expected %q, got %q", kind, line[0]))
	}
	if len(line) < len("*1\r\n") || line[len(line)-2] != '\r' {
		return protocolError("invalid length")
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil || n < least || n > most {
		return protocolError("invalid length")
	}
	if kind == '*' {
		c.arguments = n
	} else {
		c.arguments--
		c.body = n + len("\r\n")
	}
	c.head = line
	return nil
}
