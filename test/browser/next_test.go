package browser

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// Whatever the address of the login page says comes next, Chromium is on the console after the login, and asks no other host.
func TestLoginStaysOnTheConsole(t *testing.T) {
	t.Parallel()
	s := newSite(t, buckets, true)
	var visits atomic.Int64
	away := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	t.Cleanup(away.Close)
	p := newTab(t)
	for _, form := range []string{
		"\t/\t/AWAY", "/\t/AWAY", "\t//AWAY", "\n//AWAY", "//AWAY", "///AWAY", `\\AWAY`, `/\AWAY`, "\t\\AWAY", "fleet\t/\t/AWAY", "http://AWAY/", "http:AWAY", "ht\ttp://AWAY/",
		"../../../AWAY", "javascript:window.ran=1", "jav\tascript:window.ran=1", "buckets/..%2f..%2f..%2fAWAY",
	} {
		next := strings.ReplaceAll(form, "AWAY", strings.TrimPrefix(away.URL, "http://"))
		if _, err := chromedp.Call(p.ctx, network.ClearBrowserCookies, cdp.Empty{}); err != nil {
			t.Fatal(err)
		}
		p.open(s.console + "login?next=" + url.QueryEscape(next))
		_, err := chromedp.RunResponse(p.ctx, chromedp.SendKeys(chromedp.CSS("#key"), secret+"\r"))
		at := eval[string](p, "location.href")
		if err != nil || !strings.HasPrefix(at, s.console) || strings.HasPrefix(at, s.console+"login") || eval[bool](p, "'ran' in window") {
			t.Errorf("next %q leads to %s, %v", next, at, err)
		}
	}
	if n := visits.Load(); n > 0 {
		t.Errorf("another host was asked %d times", n)
	}
}
