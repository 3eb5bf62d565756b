package httpapi_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/workers/httpworker"
	"github.com/tundish-io/tundish/workers/llm"
)

// calmAPI is an API of HTTP/2 that answers what end does with a request, and returns its URL.
func calmAPI(t *testing.T, files redistest.Certificates, end func(f *http2.Framer, stream uint32)) string {
	t.Helper()
	pair := must.Get(tls.LoadX509KeyPair(files.Cert, files.Key))(t)
	listener := must.Get(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}))(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveFrames(conn, end)
		}
	}()
	return "https://" + listener.Addr().String()
}

// serveFrames reads the frames of a connection to their end.
func serveFrames(conn net.Conn, end func(f *http2.Framer, stream uint32)) {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(conn, conn)
	_ = f.WriteSettings()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			if frame.StreamEnded() {
				end(f, frame.StreamID)
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				end(f, frame.StreamID)
			}
		}
	}
}

func respondOK(f *http2.Framer, stream uint32) {
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "204"})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
}

// An API that ends a stream, or its connection, by ENHANCE_YOUR_CALM has asked for fewer requests. It may have processed the call, so that is not
// sent again here: the client of a proxy gets a 429 with a time, and no word against another try.
func TestEnhanceYourCalmIs429(t *testing.T) {
	t.Parallel()
	for name, calm := range map[string]func(f *http2.Framer, stream uint32){
		"of a stream": func(f *http2.Framer, stream uint32) { _ = f.WriteRSTStream(stream, http2.ErrCodeEnhanceYourCalm) },
		"of the connection": func(f *http2.Framer, stream uint32) {
			_ = f.WriteGoAway(stream, http2.ErrCodeEnhanceYourCalm, nil)
			_ = f.WriteRSTStream(stream, http2.ErrCodeEnhanceYourCalm)
		},
		"above the last stream": func(f *http2.Framer, _ uint32) { _ = f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := redistest.NewCertificates(t)
			calls := make(chan struct{}, 100)
			url := calmAPI(t, files, func(f *http2.Framer, stream uint32) {
				calls <- struct{}{}
				if len(calls) == 1 {
					calm(f, stream)
					return
				}
				respondOK(f, stream)
			})
			p := newProxyRigOf(t, func(b *shaper.Bucket, c *httpworker.Config) {
				if b.Name == "api" {
					c.BaseURL, c.TLS.CA = url, files.CA
				}
			})
			d := newRouteRigOf(t, func(bucket string, c *llm.Config) {
				if bucket == "quick" {
					c.HTTP.BaseURL, c.HTTP.TLS.CA = url, files.CA
				}
			})
			for path, do := range map[string]func() *answer{
				"the proxy":    func() *answer { return p.do("POST", "/v1/proxy/api/x", "{}") },
				"an LLM route": func() *answer { return d.do("POST", "/v1/proxy/openai/v1/x", chatOf("gpt-5")) },
			} {
				for len(calls) > 0 {
					<-calls
				}
				a := do()
				if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "1" || a.header.Get("X-Should-Retry") != "" || !strings.Contains(a.text, `"api-throttled"`) || len(calls) != 1 {
					t.Errorf("%s: %d %s, %v after %d calls", path, a.status, a.text, a.header, len(calls))
				}
				if a := do(); a.status != http.StatusNoContent {
					t.Errorf("%s: the next one: %d %s", path, a.status, a.text)
				}
			}
		})
	}
}
