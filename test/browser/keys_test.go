package browser

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// says waits until the page says something. While another page comes, nothing is said.
func (p *tab) says(text string) {
	p.t.Helper()
	await(p.t, "the page says "+text, func() bool {
		all, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.readyState === 'complete' ? document.body.innerText : ''"))
		return err == nil && strings.Contains(all, text)
	})
}

// tabTo presses the key Tab until a button or a field has the focus.
func (p *tab) tabTo(what string) {
	p.t.Helper()
	const most = 60
	for range most {
		p.press("\t")
		if eval[string](p, "document.activeElement.id || document.activeElement.textContent.trim()") == what {
			if eval[bool](p, "getComputedStyle(document.activeElement).outlineStyle !== 'none'") {
				return
			}
			p.t.Fatalf("nothing shows that %q has the focus", what)
		}
	}
	p.t.Fatalf("%d presses of Tab do not lead to %q", most, what)
}

// push leads the focus to a button or a link, presses it, and waits for what the page says then.
func (p *tab) push(what, said string) {
	p.t.Helper()
	p.tabTo(what)
	p.press("\r")
	p.says(said)
}

// checkReach presses the key Tab through the page: each control that is seen gets the focus.
func (p *tab) checkReach(t *testing.T, page string) {
	t.Helper()
	const prepare = `
		reached = new Set();
		controls = [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, summary, [tabindex="0"]')].filter((e) => e.tabIndex >= 0 && e.checkVisibility() && !e.closest('dialog'));
		document.addEventListener('focusin', (event) => reached.add(event.target));
		document.body.tabIndex = -1;
		document.body.focus();
		controls.length`
	n := eval[int](p, prepare)
	if n == 0 {
		t.Fatalf("%s has no controls", page)
	}
	p.press(strings.Repeat("\t", 2*n+2)) // round once, from wherever the focus was
	if missed := eval[[]string](p, "controls.filter((e) => !reached.has(e)).map((e) => e.outerHTML.slice(0, 100))"); len(missed) > 0 {
		t.Errorf("%s: the key Tab does not lead to %d of %d controls:\n%s", page, len(missed), n, strings.Join(missed, "\n"))
	}
}

// A bucket is paused, resumed and given another rate without a mouse, with the script and without it.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	p := newTab(t)
	s := newSite(t, buckets, false)
	for _, script := range []bool{true, false} {
		p.as(look{script: script, width: 1280})
		p.open(s.console + "buckets/paused")
		p.tabTo("reason")
		p.press("for the test")
		p.push("Pause", "It is paused.")
		p.says("for the test")
		p.push("Resume", "It runs again.")
		p.tabTo("rate")
		p.press("40/s\r") // the field is selected as Tab comes to it
		p.says("The rate is changed")
		p.push("Reset all settings", "The configured settings apply again.")
	}
	if text := s.do(http.MethodGet, "http://"+s.ops+"/v1/audit?bucket=paused", nil); strings.Count(string(text), `"pauseBucket"`) != 2 || strings.Count(string(text), "40/s") == 0 {
		t.Errorf("the audit: %s", text)
	}
}

// pressSlash presses the key as a keyboard does: a page that takes the key for itself gets no character. [tab.press] sends that apart.
func (p *tab) pressSlash() {
	p.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		key := input.DispatchKeyEventParams{Type: kind, Key: "/", Code: "Slash", WindowsVirtualKeyCode: 191}
		if kind == input.DispatchKeyEventTypeKeyDown {
			key.Text = "/"
		}
		if _, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, key); err != nil {
			p.t.Fatal(err)
		}
	}
}

// The key / leads to the search, where a job is found. In a field it is a character.
func TestSearchKey(t *testing.T) {
	t.Parallel()
	p := newTab(t)
	s := newSite(t, buckets, false)
	s.enqueue("letters", 1, map[string]any{"payload": "x", "flow": "acme", "id": "a-job"})
	p.as(look{script: true, width: 1280})
	p.open(s.console + "buckets/even")
	await(t, "the script listens", func() bool {
		return eval[bool](p, "[...document.querySelectorAll('button')].some((b) => b.textContent === 'Stop live updates')")
	})
	p.pressSlash()
	if id := eval[string](p, "document.activeElement.id"); id != "search" {
		t.Fatalf("the focus is on %q", id)
	}
	p.pressSlash()
	if value := eval[string](p, "document.activeElement.value"); value != "/" {
		t.Errorf("in the field stands %q", value)
	}
	p.press("\ba-job\r")
	p.says("a-job in letters")
}
