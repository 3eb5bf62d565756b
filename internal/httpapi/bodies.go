package httpapi

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// How bodies are read.
const (
	firstRead = 4 << 10

	// bodyCost is the number of copies for which a body counts: the body that was read, and the one that is sent to Redis or the API. While it grows,
	// they are the old and the new buffer.
	bodyCost = 2

	// A client has to send paceBytes of a body, or its end, within each paceTime.
	paceBytes = 40 << 10
	paceTime  = 5 * time.Second
)

// errBodyMemory says that there is no memory for a body.
var errBodyMemory = errors.New("the bodies and responses of other requests use all memory, or this caller's use its share")

// read reads a body, of size bytes or, if size is negative, to its end. It reserves memory as the bytes arrive, at most four times as much. So a client
// that announces a large body and sends nothing takes no memory from others. A body counts bodyCost times. deadline bounds the time of further reads.
func (u *usage) read(from io.Reader, size int64, deadline func(time.Duration)) (body []byte, err error) {
	if size == 0 {
		return nil, nil
	}
	began, paced := time.Now(), -paceBytes
	defer func() {
		switch {
		case err == nil:
			deadline(readTimeout) // a further read only notices that the client disconnects
		case !errors.Is(err, os.ErrDeadlineExceeded):
			deadline(unreadTime)
		}
	}()
	for {
		if len(body)-paced >= paceBytes {
			paced = len(body)
			deadline(min(paceTime, readTimeout-time.Since(began)))
		}
		if int64(len(body)) == size {
			return body, nil
		}
		if len(body) == cap(body) {
			room := max(firstRead, int64(cap(body))*3/2)
			if size >= 0 {
				room = min(max(firstRead, 4*int64(cap(body))), size)
			}
			if !u.takeBody(bodyCost * (room - int64(cap(body)))) {
				return nil, errBodyMemory
			}
			body = append(make([]byte, 0, room), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF) && size > int64(len(body)):
			return nil, io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}

// unreadTime is how long the unread rest of a body may delay the next request of the connection.
const unreadTime = time.Second

// limitUnread bounds the time of a body, until readBody sets another one.
func limitUnread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			setReadDeadline(w, unreadTime)
		}
		next.ServeHTTP(w, r)
	})
}

// setReadDeadline bounds the time of further reads. A request without a connection has no deadlines.
func setReadDeadline(w http.ResponseWriter, within time.Duration) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within))
}
