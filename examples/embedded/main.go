// Program embedded has everything in one process: it enqueues letters, and sends them at an even rate. Start it twice: both together keep the rate.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/tundish-io/tundish"
)

// Letter is the payload of a job.
type Letter struct{ To string }

var letters = tundish.Define[Letter]("letters")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	t, err := tundish.Open("redis://127.0.0.1:6379/0")
	if err != nil {
		return err
	}
	defer t.Close()
	t.Handle(letters.Work(tundish.Settings{Rate: "20/s", MaxAttempts: 5}, send))

	// Requests come in bursts; a client that sends too many gets a 429.
	perClient, err := t.Limit("letters-per-client", "1000/m")
	if err != nil {
		return err
	}
	server := &http.Server{Addr: "127.0.0.1:9126", Handler: perClient.Middleware(enqueuing(t)), ReadHeaderTimeout: 5 * time.Second}
	go func() { log.Print(server.ListenAndServe()) }()
	defer server.Close()
	return t.Run(ctx)
}

// enqueuing enqueues a letter for each request, such as /?to=ada.
func enqueuing(t *tundish.Client) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		receipt, err := letters.Enqueue(r.Context(), t, Letter{To: r.FormValue("to")})
		var refused *tundish.RefusedError
		switch {
		case errors.As(err, &refused):
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		case err != nil: // unknown whether it was enqueued
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, receipt.ID)
		}
	})
}

var errNoAddress = errors.New("the letter has no address")

// send sends a letter.
func send(ctx context.Context, l Letter) error {
	if l.To == "" {
		return tundish.Dead(errNoAddress) // no other try would help
	}
	fmt.Printf("%s attempt %d: dear %s\n", time.Now().Format("15:04:05.000"), tundish.AttemptOf(ctx).Number, l.To)
	return nil
}
