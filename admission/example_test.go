package admission_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/redisconn"
)

// A limit on its own, outside any bucket.
func ExampleLimiter_Allow() {
	store, err := embedded.Start("127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	redis, err := redisconn.Connect(store.URL(), redisconn.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer redis.Close()

	limit := admission.Limit{Name: "logins", Per: []string{admission.PerCaller}, Burst: 2}
	limit.Limit, _ = admission.ParseRate("10/h")
	limiter, err := admission.NewLimiter(admission.LimiterConfig{Redis: redis, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	key, _ := limit.Key(admission.Identity{Caller: "ada"})
	for range 3 {
		decision, err := limiter.Allow(context.Background(), limit, key, 1)
		if err != nil {
			fmt.Println(err) // Redis is down: nothing was decided
			return
		}
		fmt.Println(decision.Allowed, decision.Remaining)
	}

	// Output:
	// true 1
	// true 0
	// false 0
}
