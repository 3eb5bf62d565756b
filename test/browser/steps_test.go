package browser

import (
	"net/http"
	"strings"
	"testing"
)

// Dead letters are put back, and then dropped, step by step and without a mouse: with the script the page goes on by itself, without it by a button.
func TestDeadLettersStepByStep(t *testing.T) {
	t.Parallel()
	const letters = 2500 // two steps
	p := newTab(t)
	s := newSite(t, strings.Replace(buckets, "rate = \"50/s\"\nretry", "rate = \"5000/s\"\nretry", 1), false)
	s.enqueue("refused", letters, map[string]any{"payload": "x"})
	dead := func() bool {
		return strings.Contains(string(s.do(http.MethodGet, "http://"+s.ops+"/v1/buckets/refused", nil)), `"dead":2500,`)
	}
	await(t, "all are dead", dead)
	for _, script := range []bool{true, false} {
		s.do(http.MethodPost, "http://"+s.ops+"/v1/buckets/refused/pause", map[string]any{"reason": "the letters stay here"})
		p.as(look{script: script, width: 1280})
		p.open(s.console + "buckets/refused/dead")
		p.push("Redrive all", "there are more")
		p.tabTo("Redrive them")
		p.press("\r")
		if !script {
			p.says("Go on")
			p.tabTo("Go on")
			p.press("\r")
		}
		p.says("2500 dead letters put back, 2500 looked at. This was all of them.")
		s.do(http.MethodPost, "http://"+s.ops+"/v1/buckets/refused/resume", nil)
		await(t, "they are dead again", dead)
	}
	p.as(look{script: true, width: 1280})
	p.open(s.console + "buckets/refused/dead")
	p.push("Drop all", "gone for good")
	p.tabTo("confirm")
	p.press("refused")
	p.push("Drop them for good", "2500 dead letters dropped, 2500 looked at. This was all of them.")
	if text := string(s.do(http.MethodGet, "http://"+s.ops+"/v1/audit?bucket=refused", nil)); strings.Count(text, `"redriveDead"`) != 2 || strings.Count(text, `"dropDead"`) != 1 {
		t.Errorf("the audit: %s", text)
	}
}

// A purge, and a schedule that is paused and fired, without a mouse.
func TestPurgeAndSchedulesByKeyboard(t *testing.T) {
	t.Parallel()
	p := newTab(t)
	s := newSite(t, buckets, false)
	p.as(look{script: true, width: 1280})
	s.do(http.MethodPost, "http://"+s.ops+"/v1/buckets/paused/pause", map[string]any{"reason": "for the test"})
	s.enqueue("paused", 7, map[string]any{"payload": "x"})
	p.open(s.console + "buckets/paused")
	p.push("Purge…", "7 jobs")
	p.tabTo("confirm")
	p.press("paused")
	p.push("Purge it", "The waiting jobs are dropped.")
	p.open(s.console + "schedules")
	p.push("Pause", "It is paused.")
	p.push("Resume", "It runs again.")
	p.push("Fire now", "It fires now.")
}
