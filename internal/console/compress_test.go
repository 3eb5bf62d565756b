package console_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/must"
)

// A browser gets pages and files compressed, a client that takes no gzip does not.
func TestCompressed(t *testing.T) {
	t.Parallel()
	v := newSite(t).visitor()
	for _, path := range []string{"/console/", "/console/buckets/letters", "/console/assets/console.css", "/console/assets/console.js", "/console/assets/icon.svg", "/console/buckets/none"} {
		plain := v.do(http.MethodGet, path, nil, "Accept-Encoding", "br, gzip;q=0")
		packed := v.do(http.MethodGet, path, nil, "Accept-Encoding", "deflate, gzip;q=0.8")
		if plain.header.Get("Content-Encoding") != "" || packed.header.Get("Content-Encoding") != "gzip" || packed.header.Get("Vary") != "Accept-Encoding" || plain.header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: headers %v and %v", path, plain.header, packed.header)
			continue
		}
		reader := must.Get(gzip.NewReader(strings.NewReader(packed.text)))(t)
		text, err := io.ReadAll(reader)
		if start, _, _ := strings.Cut(plain.text, "<main"); err != nil || !strings.HasPrefix(string(text), start) || packed.status != plain.status {
			t.Errorf("%s: compressed it is another one (%v)", path, err)
		}
	}
	if answer := v.do(http.MethodHead, "/console/", nil, "Accept-Encoding", "gzip"); answer.header.Get("Content-Encoding") != "" {
		t.Errorf("HEAD: %v", answer.header)
	}
	v.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if answer := v.do(http.MethodGet, "/console", nil, "Accept-Encoding", "gzip"); answer.status/100 != 3 {
		t.Errorf("a redirection: %d %v", answer.status, answer.header)
	}
}
