package tundish_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tundish-io/tundish"
	"github.com/tundish-io/tundish/shaper"
)

// One message when all letters of a newsletter have gone out, or failed for good. Here the program looks itself; a bucket with callbacks tells
// it to a URL.
func ExampleInBundle() {
	letters := tundish.Define[Letter]("newsletters")
	t, err := tundish.Open(redisURL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer t.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	t.Handle(letters.Work(tundish.Settings{Rate: "1000/s"}, func(_ context.Context, l Letter) error {
		if l.To == "nobody" {
			return tundish.Dead(errors.New("no such address"))
		}
		return nil
	}))
	addresses := []string{"ada", "grace", "nobody"}
	if _, err := t.Producer().OpenBundle(ctx, letters.Name(), shaper.Bundle{ID: "newsletter-7", Size: int64(len(addresses))}); err != nil {
		fmt.Println(err)
		return
	}
	for _, to := range addresses {
		if _, err := letters.Enqueue(ctx, t, Letter{To: to}, tundish.InBundle("newsletter-7")); err != nil {
			fmt.Println(err)
			return
		}
	}
	go func() {
		defer stop()
		for range time.Tick(50 * time.Millisecond) {
			bundle, err := t.Producer().Bundle(ctx, letters.Name(), "newsletter-7")
			if err != nil {
				fmt.Println(err)
				return
			}
			if !bundle.Finished.IsZero() {
				fmt.Printf("%d of %d have ended: %d sent, %d failed\n", bundle.Ended(), bundle.Size, bundle.Done, bundle.Dead)
				return
			}
		}
	}()
	if err := t.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: 3 of 3 have ended: 2 sent, 1 failed
}
