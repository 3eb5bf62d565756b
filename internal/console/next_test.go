package console

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
)

// After a login a visitor stays in the console, whatever the address asks for.
func FuzzSafePage(f *testing.F) {
	for _, page := range []string{"fleet", "buckets/a?x=//b", "//evil.example", "https://evil.example", "/v1", "\\\\evil.example", "..//evil.example", "javascript:alert(1)", "buckets/a%2Fb", "?q=a:b", "a/../../v1"} {
		f.Add(page)
	}
	f.Fuzz(func(t *testing.T, page string) {
		at := must.Get(url.Parse("https://here.example/ops/console/login"))(t)
		to, err := at.Parse("./" + safePage(page))
		if err != nil {
			return // a browser has no such address
		}
		if to.Host != "here.example" || to.Scheme != "https" || !strings.HasPrefix(to.Path, "/ops/console/") {
			t.Errorf("%q leads to %s", page, to)
		}
	})
}

func TestAttempts(t *testing.T) {
	t.Parallel()
	var a attempts
	now := time.Date(2026, 11, 27, 9, 0, 10, 0, time.UTC)
	for range maxAttempts {
		if _, may := a.mayTry("x", now); !may {
			t.Fatal("too few attempts")
		}
		a.fail("x", now)
	}
	if wait, may := a.mayTry("x", now); may || wait != 50*time.Second {
		t.Errorf("may: %t, wait %s", may, wait)
	}
	if _, may := a.mayTry("y", now); !may {
		t.Error("another address may not try")
	}
	if _, may := a.mayTry("x", now.Add(50*time.Second)); !may {
		t.Error("it may not try in the next minute")
	}
	for i := range maxAddresses + 1 {
		a.fail(strings.Repeat("z", i%7)+string(rune('a'+i%26))+time.Duration(i).String(), now)
	}
	if len(a.failed) > maxAddresses {
		t.Errorf("%d addresses are counted", len(a.failed))
	}
	for range 2 * maxAttempts { // of one that is not counted
		a.fail("new", now)
	}
	if _, may := a.mayTry("new", now); !may {
		t.Error("addresses that fill the bound have an address of somebody else wait")
	}
}
