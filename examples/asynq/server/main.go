// Program server is an ordinary asynq server with one middleware added. It counts the emails that it sends.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	tundishasynq "github.com/tundish-io/tundish/workers/asynq"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	client, err := tundishasynq.Dial("redis://127.0.0.1:6390/0", "emails")
	if err != nil {
		return err
	}
	defer client.Close() // after the server has shut down
	var sent counter
	go func() { log.Print(http.ListenAndServe("127.0.0.1:9125", &sent)) }()

	mux := asynq.NewServeMux()
	mux.Use(client.Middleware()) // the only additions are this, and the client
	mux.HandleFunc("email:send", func(context.Context, *asynq.Task) error {
		sent.add()
		return nil
	})
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: "127.0.0.1:6390"}, asynq.Config{TaskCheckInterval: 50 * time.Millisecond})
	return server.Run(mux) // until SIGINT or SIGTERM
}

// counter counts the emails sent, and the most in a second.
type counter struct {
	mu    sync.Mutex
	times []time.Time
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times = append(c.times, time.Now())
}

func (c *counter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most, first := 0, 0
	for i, t := range c.times {
		for t.Sub(c.times[first]) > time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	fmt.Fprintf(w, "%d sent, at most %d in a second\n", len(c.times), most)
}
