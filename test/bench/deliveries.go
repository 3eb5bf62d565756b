package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/hibiken/asynq"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/workers/webhook"
)

const (
	deliveryWorkers = 256 // the default of a dispatcher
	deliveriesEach  = 12_000
	deliveryWarmUp  = 1000
)

// deliveries compares webhooks sent to a receiver on this machine with the same requests by a bare
// http.Client, and by an asynq handler that has this client.
func deliveries(ctx context.Context, server *redistest.Server, rounds int) ([]string, error) {
	var counted *counter
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
		counted.note()
	}))
	defer receiver.Close()
	config := webhook.DefaultConfig()
	config.URL, config.AllowNetworks, config.Concurrency = receiver.URL, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, deliveryWorkers
	worker, err := webhook.New(config)
	if err != nil {
		return nil, err
	}
	defer worker.Close()
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: deliveryWorkers}}
	defer hc.CloseIdleConnections()
	send := func(ctx context.Context) error { return post(ctx, hc, receiver.URL) }

	fresh := func() *counter {
		counted = newCounter(deliveryWarmUp, deliveriesEach) // nothing is under way
		return counted
	}
	rates, err := alternate(rounds,
		func() (float64, error) { return fresh().rateOf(ctx, server, shapes[0], deliveryWorkers, worker) },
		func() (float64, error) {
			c := fresh()
			err := inParallel(deliveryWorkers, deliveriesEach, func(int) error { return send(ctx) })
			return c.rate(), err
		},
		func() (float64, error) {
			return fresh().rateOfAsynq(ctx, server, deliveryWorkers, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return send(ctx) }))
		})
	if err != nil {
		return nil, fmt.Errorf("deliveries: %w", err)
	}
	figures := func(name string, other int) string {
		return fmt.Sprintf("tundish %6.0f/s   %s %6.0f/s", median(rates[0]), name, median(rates[other]))
	}
	missed := atLeast(.75).check("deliveries to this machine", figures("http.Client", 1), medianRatio(rates[0], rates[1]))
	return append(missed, atLeast(2).check("deliveries to this machine", figures("asynq", 2), medianRatio(rates[0], rates[2]))...), nil
}

func post(ctx context.Context, hc *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(payload))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := hc.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the receiver answered %s", answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
