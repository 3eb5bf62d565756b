package console

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"

	"github.com/tundish-io/tundish/internal/httpapi"
)

// compressors are reused: each has buffers of a megabyte.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compressed compresses next's pages and files for clients that accept gzip. The stream is not compressed: it is sent second by second.
//
// The length of a compressed page reveals repeated text in it (BREACH). No page has a secret next to text that a visitor may choose: the session is only
// in the cookie. Forms have no token, because the server refuses forms of other origins.
func compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if r.Method != http.MethodGet || r.URL.Path == Path+"stream" || r.Header.Get("Range") != "" || !httpapi.TakesGzip(r.Header.Get("Accept-Encoding")) {
			next.ServeHTTP(w, r)
			return
		}
		c := &compressor{ResponseWriter: w}
		defer c.end()
		next.ServeHTTP(c, r)
	})
}

// compressor compresses a response that has a body.
type compressor struct {
	http.ResponseWriter

	gzip  *gzip.Writer // nil: the response is not compressed
	begun bool
}

func (c *compressor) WriteHeader(status int) {
	if !c.begun {
		c.begun = true
		h := c.Header()
		if kind := h.Get("Content-Type"); (strings.HasPrefix(kind, "text/") || strings.HasPrefix(kind, "image/svg")) && status != http.StatusNotModified {
			h.Set("Content-Encoding", "gzip")
			h.Del("Content-Length")
			c.gzip = compressors.Get().(*gzip.Writer) //nolint:forcetypeassert // it has no others
			c.gzip.Reset(c.ResponseWriter)
		}
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *compressor) Write(text []byte) (int, error) {
	if !c.begun {
		c.WriteHeader(http.StatusOK)
	}
	if c.gzip != nil {
		return c.gzip.Write(text) //nolint:wrapcheck // as of any writer
	}
	return c.ResponseWriter.Write(text) //nolint:wrapcheck // as of any writer
}

// end writes the rest.
func (c *compressor) end() {
	if c.gzip != nil {
		_ = c.gzip.Close() // a visitor that has disconnected needs no page
		c.gzip.Reset(nil)
		compressors.Put(c.gzip)
	}
}
