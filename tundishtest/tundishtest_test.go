package tundishtest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tundish-io/tundish"
	"github.com/tundish-io/tundish/tundishtest"
)

type Reminder struct{ To string }

// A job for three hours later comes after three hours, which take no time here.
func TestHoursPassAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reminders, c := tundish.Define[Reminder]("reminders"), tundishtest.Open(t)
		begin := time.Now()
		var came time.Duration
		c.Handle(reminders.Work(tundish.Settings{Rate: "1/s"}, func(context.Context, Reminder) error { came = time.Since(begin); return nil }))
		tundishtest.Run(t, c)
		if _, err := reminders.Enqueue(t.Context(), c, Reminder{"ada"}, tundish.In(3*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if info := tundishtest.Info(t, c, reminders.Name()); info.Scheduled != 1 {
			t.Errorf("%d jobs for later", info.Scheduled)
		}
		tundishtest.Drain(t, c, reminders.Name())
		if came < 3*time.Hour || came > 3*time.Hour+time.Second {
			t.Errorf("it came after %s", came)
		}
	})
}

// Without a bubble the same takes its time.
func TestWithoutABubble(t *testing.T) {
	t.Parallel()
	reminders, c := tundish.Define[Reminder]("reminders"), tundishtest.Open(t)
	called := make(chan struct{})
	c.Handle(reminders.Work(tundish.Settings{Rate: "100/s"}, func(context.Context, Reminder) error { close(called); return nil }))
	tundishtest.Run(t, c)
	if _, err := reminders.Enqueue(t.Context(), c, Reminder{"ada"}); err != nil {
		t.Fatal(err)
	}
	<-called
	tundishtest.Drain(t, c, reminders.Name())
}

func ExampleStartStore() {
	store, err := tundishtest.StartStore()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	t, err := tundish.Open(store.URL())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.Redis().Ping(context.Background()).Val(), t.Close())

	// Output: PONG <nil>
}
