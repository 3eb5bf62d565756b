package console

import (
	"math/rand/v2"
	"strings"
	"testing"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"github.com/tundish-io/tundish/internal/must"
)

// fragments are what addresses are made of that browsers read in their own way.
var fragments = []string{
	"/", "//", "\\", "\t", "\n", "\r", "\x00", " ", ":", "?", "#", "@", ".", "..", "%2e", "%2f", "%5c", "%09", "%", "&", "=", "https:", "javascript:", "evil.example", "fleet", "buckets/",
	"buckets", "audit", "login", "v1", "ä", "\ufeff", "\u3002", ";", "stream", "a",
}

// Whatever next has, a browser stays in the console: its address is read as the standard of browsers says.
func TestSafePageInABrowser(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(20, 3))
	pages := []string{"?sort=waiting", "\t/\t/evil.example", "\n//evil.example", "\t\\evil.example", "/\t/evil.example", "fleet\t/\t/evil.example", "buckets/..%2f..%2fv1", "buckets/a/../../../v1", "jav\tascript:alert(1)"}
	for range 200_000 {
		var b strings.Builder
		for range 1 + random.IntN(6) {
			b.WriteString(fragments[random.IntN(len(fragments))])
		}
		pages = append(pages, b.String())
	}
	led := 0
	for _, page := range pages {
		safe := safePage(page)
		location := location(safe)
		to, err := whatwg.ParseRef("https://here.example/ops/console/login", location)
		if err != nil {
			t.Errorf("%q: %v", page, err)
			continue
		}
		if to.Protocol() != "https:" || to.Host() != "here.example" || !strings.HasPrefix(to.Pathname(), "/ops/console/") || to.Pathname() == "/ops/console/login" || strings.ContainsAny(location, "\t\r\n\\") {
			t.Errorf("%q leads to %s", page, to.Href(false))
		}
		if safe != "" {
			led++
		}
	}
	if led < 100 {
		t.Errorf("%d pages are led to", led)
	}
}

// A login leads back to the page that asked for it.
func TestNextPages(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		"fleet": "fleet", "buckets/letters": "buckets/letters", "buckets/letters/dead?reason=a+b&q=%2F": "buckets/letters/dead?q=%2F&reason=a+b", "?sort=waiting": "?sort=waiting",
		"buckets/grouped/flow?flow=a%26b&group=g": "buckets/grouped/flow?flow=a%26b&group=g", "audit?bucket=letters": "audit?bucket=letters",
		"": "", "login": "", "stream": "", "nothing": "", "assets/console.js": "", "buckets/letters/do/pause": "", "v1/buckets": "", "fleet/..": "",
	} {
		must.Equal(t, safePage(page), want, "%q leads to", page)
	}
}
