package outgoing

import (
	"net/url"
	"testing"

	"github.com/tundish-io/tundish/shaper"
)

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"https://example.com/", "http://[::1%25lo]:80/", "http://münchen.example", "http://0x7f.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		target, err := ParseURL(s)
		if err != nil {
			return
		}
		if target.Origin.Host == "" || target.URL.User != nil || target.URL.Host != target.Origin.Authority() {
			t.Errorf("%q: %+v", s, target)
		}
		sent, err := url.Parse(target.URL.String())
		if err != nil {
			t.Fatalf("%q is sent as %q: %v", s, target.URL, err)
		}
		if origin, err := shaper.OriginOf(sent); origin != target.Origin {
			t.Errorf("%q: checked %s, sent to %s, %v", s, target.Origin, origin, err)
		}
	})
}
