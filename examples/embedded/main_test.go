package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish"
	"github.com/tundish-io/tundish/tundishtest"
)

// A hundred letters take five seconds, of which the test needs none, and one without an address is a dead letter.
func TestLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := tundishtest.Open(t)
		c.Handle(letters.Work(tundish.Settings{Rate: "20/s"}, send))
		tundishtest.Run(t, c)
		begin := time.Now()
		for n := range 100 {
			if _, err := letters.Enqueue(t.Context(), c, Letter{To: fmt.Sprint("reader ", n)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := letters.Enqueue(t.Context(), c, Letter{}); err != nil {
			t.Fatal(err)
		}
		tundishtest.Drain(t, c, letters.Name())
		if took := time.Since(begin); took < 5*time.Second {
			t.Errorf("101 letters at 20 a second took %s", took)
		}
		if dead := tundishtest.Info(t, c, letters.Name()).Dead; dead != 1 {
			t.Errorf("%d dead letters", dead)
		}
	})
}
