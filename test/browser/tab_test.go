package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a page of the browser.
type tab struct {
	t      *testing.T
	ctx    context.Context
	mu     sync.Mutex
	said   []string // what stands in the browser's console
	loaded []*network.EventResponseReceived
	bytes  float64 // that were transferred
	asked  int     // requests
}

// newTab opens a tab with cookies of its own in a window of its own.
func newTab(t *testing.T) *tab {
	t.Helper()
	return openTab(t, nil, true)
}

// openTab opens a tab with cookies of its own, or with those of another tab: in a window of its own it is seen, else it hides the other one.
func openTab(t *testing.T, of *tab, window bool) *tab {
	t.Helper()
	if browser == nil {
		if os.Getenv("CI") != "" {
			t.Fatal("this test needs chromium: apt-get install chromium")
		}
		t.Skip("this test needs chromium, which scripts/browser installs")
	}
	parent, option := browser, chromedp.WithNewBrowserContext()
	if of != nil {
		parent, option = of.ctx, chromedp.WithNewWindow(window)
	}
	ctx, cancel := chromedp.NewContext(parent, option)
	t.Cleanup(cancel)
	p := &tab{t: t}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if end, ok := t.Deadline(); ok {
		ctx, cancel = context.WithDeadline(ctx, end.Add(-10*time.Second))
		t.Cleanup(cancel)
	}
	p.ctx = ctx
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	for _, enable := range []func() error{
		func() error { _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); return err },
		func() error { _, err := chromedp.Call(ctx, runtime.Enable, cdp.Empty{}); return err },
		func() error { _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); return err },
	} {
		if err := enable(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// hear notes what the browser tells of the tab.
func (p *tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch event := event.(type) {
	case *log.EventEntryAdded:
		p.said = append(p.said, fmt.Sprintf("%s %s: %s (%s)", event.Entry.Source, event.Entry.Level, event.Entry.Text, event.Entry.URL))
	case *runtime.EventExceptionThrown:
		p.said = append(p.said, "exception: "+event.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		p.said = append(p.said, fmt.Sprintf("console.%s", event.Type))
	case *network.EventRequestWillBeSent:
		p.asked++
	case *network.EventResponseReceived:
		p.loaded = append(p.loaded, event)
	case *network.EventLoadingFinished:
		p.bytes += event.EncodedDataLength
	}
}

// look is how a page is looked at.
type look struct {
	dark, script bool
	width        int64
}

func (l look) String() string {
	light, script := "light", "script"
	if l.dark {
		light = "dark"
	}
	if !l.script {
		script = "no-script"
	}
	return fmt.Sprintf("%s-%d-%s", light, l.width, script)
}

// as has the tab look so from now on.
func (p *tab) as(l look) {
	p.t.Helper()
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, media)
	if err == nil {
		_, err = chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !l.script})
	}
	const height = 900
	if err == nil {
		err = chromedp.Do(p.ctx, chromedp.EmulateViewport(l.width, height))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// open loads a page, and returns its status.
func (p *tab) open(url string) int64 {
	p.t.Helper()
	response, err := chromedp.RunResponse(p.ctx, chromedp.Navigate(url))
	if err != nil {
		p.t.Fatalf("%s: %v", url, err)
	}
	return response.Status
}

// login gives the key of a site.
func (p *tab) login(s *site) {
	p.t.Helper()
	p.open(s.console + "login")
	if _, err := chromedp.RunResponse(p.ctx, chromedp.SendKeys(chromedp.CSS("#key"), secret+"\r")); err != nil {
		p.t.Fatal(err)
	}
	if at := eval[string](p, "location.pathname"); at != "/console/" {
		p.t.Fatalf("after the login the page is %s", at)
	}
}

// eval is the value of an expression in the page. The policy of the page does not bind it.
func eval[T any](p *tab, expression string, options ...chromedp.EvaluateOption) T {
	p.t.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, options...))
	if err != nil {
		p.t.Fatalf("%.100s: %v", expression, err)
	}
	return value
}

// press presses keys, such as "\t" and "\r".
func (p *tab) press(keys string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.KeyEvent(keys)); err != nil {
		p.t.Fatal(err)
	}
}

// messages are what stands in the browser's console since it was asked last.
func (p *tab) messages() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := p.said
	p.said = nil
	return said
}

// keep writes a picture of the page as a file of the run.
func (p *tab) keep(name string) {
	p.t.Helper()
	picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(p.t.ArtifactDir(), name+".png"), picture, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
