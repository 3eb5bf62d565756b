package browser

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// caption is the text below the picture of a bucket.
func (p *tab) caption() string {
	p.t.Helper()
	return eval[string](p, "document.querySelector('figcaption').textContent")
}

// alive waits until the live picture has begun.
func (p *tab) alive() {
	p.t.Helper()
	await(p.t, "the live picture begins", func() bool { return eval[bool](p, "document.querySelector('svg.picture') !== null") })
}

// away reports whether the page says that its numbers have stopped.
func (p *tab) away() bool {
	p.t.Helper()
	return eval[bool](p, "!document.querySelector('.away').hidden")
}

// What the picture has counted is what the producers put in, and what the receiver has.
func TestSums(t *testing.T) {
	t.Parallel()
	p := newTab(t)
	s := newSite(t, buckets, false)
	p.as(look{script: true, width: 1280})
	p.open(s.console + "buckets/even")
	p.alive()
	const jobs = 137
	s.enqueue("even", jobs, map[string]any{"payload": "x"})
	await(t, "137 departed", func() bool { return strings.Contains(p.caption(), " 137 departed") })
	if caption := p.caption(); !strings.Contains(caption, ": 137 arrived") || s.got("even") != jobs {
		t.Errorf("the receiver has %d, the picture: %s", s.got("even"), caption)
	}
	t.Log(p.caption())
	p.keep("sums")
}

// While Redis is away the page says so, and goes on by itself when Redis is back.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	p := newTab(t)
	s := newSite(t, buckets, false)
	p.as(look{script: true, width: 1280})
	p.open(s.console + "buckets/even")
	p.alive()
	s.redis.Kill()
	began := time.Now()
	await(t, "the page says that the numbers have stopped", p.away)
	t.Logf("the page says so after %s", time.Since(began).Round(100*time.Millisecond))
	p.keep("redis-away")
	if err := s.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	await(t, "the numbers go on", func() bool { return !p.away() })
	t.Logf("they go on after %s", time.Since(began).Round(100*time.Millisecond))
	await(t, "departures are seen again", func() bool { // which processes tell as soon as they have learned that somebody looks
		s.enqueue("even", 1, map[string]any{"payload": "x"})
		return strings.Contains(p.caption(), " departed") && !strings.Contains(p.caption(), " 0 departed")
	})
}

// A browser has six connections to a server of HTTP/1.1, and each page that is seen has a stream. A hidden page closes its own, and of many that are
// seen the oldest give way.
func TestSevenPages(t *testing.T) {
	t.Parallel()
	s := newSite(t, buckets, false)
	for name, window := range map[string]bool{"tabs": false, "windows": true} {
		t.Run(name, func(t *testing.T) {
			first := newTab(t)
			tabs := []*tab{first}
			const more = 6
			for range more {
				tabs = append(tabs, openTab(t, first, window))
			}
			for i, p := range tabs {
				if status := p.open(s.console + "buckets/even"); status != http.StatusOK {
					t.Errorf("page %d: %d", i+1, status)
				}
				p.says("Nothing waits")
			}
			tabs[len(tabs)-1].alive()
			visible := 0
			for _, p := range tabs {
				if eval[string](p, "document.visibilityState") == "visible" {
					visible++
				}
			}
			t.Logf("%d of %d pages are visible", visible, len(tabs))
			if window {
				first.says("Go on with live updates")
				await(t, "the first page has them again", func() bool {
					return eval[bool](first, "[...document.querySelectorAll('button')].filter((b) => b.textContent.startsWith('Go on')).forEach((b) => b.click()), document.querySelector('svg.picture') !== null")
				})
			}
		})
	}
}
