package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/internal/progress"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/dispatcher"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
	"github.com/tundish-io/tundish/workers/webhook"
)

const (
	bucketName   = "demo"
	dispatchers  = 2
	loopback     = "127.0.0.1:0"
	capacitySecs = 2.4 // of departures, as the capacity of the bucket: no gap between bursts is as long

	lineEvery  = 2 * time.Second
	drainCheck = 50 * time.Millisecond
	drainSpare = 3 * time.Second // in addition to twice the expected time of the drain
	lookTime   = 10 * time.Second

	// The store is in this process: it is slow when the whole machine is.
	storeTime = 10 * time.Second
)

// stage holds everything that takes part in a run.
type stage struct {
	opts        Options
	bucket      shaper.Bucket
	redis       redis.UniversalClient
	counts      *prometheus.Registry // of the producer
	client      *producer.Client
	operator    *operator.Operator
	dispatchers []*dispatcher.Dispatcher
	history     checker.History
	reported    atomic.Bool // from then on history gets no more: a demo that stays would fill the memory
	tally       *tally
	lateness    lateness
	closers     []func() // in the order of opening
}

// newStage opens everything, and closes what it opened if a part fails.
func newStage(ctx context.Context, opts Options) (s *stage, err error) {
	s = &stage{opts: opts, bucket: newBucket(opts), tally: newTally(time.Now())}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	store, err := embedded.Start(loopback)
	if err != nil {
		return nil, err
	}
	s.onClose(store.Close)

	connection, err := s.connect(store.URL())
	if err != nil {
		return nil, err
	}
	buckets := []shaper.Bucket{s.bucket}
	s.redis, s.counts = connection, prometheus.NewRegistry()
	if s.client, err = producer.New(producer.Config{Redis: connection, Buckets: buckets, Timeout: storeTime, Registerer: s.counts}); err != nil {
		return nil, err
	}
	if s.operator, err = operator.New(operator.Config{Redis: connection, Buckets: buckets, Timeout: storeTime}); err != nil {
		return nil, err
	}
	s.onClose(s.client.Close)
	url, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	for range dispatchers {
		if err := s.addDispatcher(store.URL(), url); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *stage) onClose(f func()) { s.closers = append(s.closers, f) }

func (s *stage) close() {
	for _, closer := range slices.Backward(s.closers) {
		closer()
	}
}

func (s *stage) connect(url string) (redis.UniversalClient, error) {
	connection, err := redisconn.Connect(url, redisconn.Options{Timeout: storeTime})
	if err != nil {
		return nil, err
	}
	s.onClose(func() { _ = connection.Close() }) // no state is lost
	return connection, nil
}

// listen starts the receiver and returns its URL.
func (s *stage) listen(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", loopback)
	if err != nil {
		return "", fmt.Errorf("start the receiver: %w", err)
	}
	receiver := &checker.Receiver{History: &s.history}
	server := &http.Server{
		ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.lateness.arrived(r.Header.Get(checker.IDHeader), time.Now())
			if !s.reported.Load() {
				s.tally.delivered()
				receiver.ServeHTTP(w, r)
			}
		}),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // always ErrServerClosed, by the closer
	}()
	s.onClose(func() {
		_ = server.Close() // no delivery is under way any more
		<-ended
	})
	return "http://" + listener.Addr().String() + "/hook", nil
}

// addDispatcher adds one that shares nothing with the others but the store.
func (s *stage) addDispatcher(storeURL, receiverURL string) error {
	connection, err := s.connect(storeURL)
	if err != nil {
		return err
	}
	connection.AddHook(&s.lateness)
	config := webhook.DefaultConfig()
	config.URL, config.JobURL = receiverURL, false
	config.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	worker, err := webhook.New(config)
	if err != nil {
		return err
	}
	s.onClose(worker.Close)
	cfg := dispatcher.Config{
		Redis: connection, Buckets: []shaper.Bucket{s.bucket},
		Workers: map[string]shaper.Worker{bucketName: s.lateness.watch(worker)},
	}
	if s.opts.Stay { // the console has its counts from the fleet
		cfg.Program, cfg.Version, cfg.Registerer = "dispatcher", s.opts.Version, prometheus.NewRegistry()
	}
	d, err := dispatcher.New(cfg)
	if err != nil {
		return err
	}
	s.dispatchers = append(s.dispatchers, d)
	return nil
}

// seen is the observation of a run.
type seen struct {
	result      checker.Result
	refused     map[shaper.Reason]int
	waiting     int           // jobs that are safe in the bucket, but were not delivered
	spread      time.Duration // of lateness
	interrupted bool
}

// run runs the dispatchers until ctx ends or stop is called. The returned context ends with the first dispatcher. stop waits for all, and returns why
// one failed.
func (s *stage) run(ctx context.Context) (running context.Context, stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	working, running := errgroup.WithContext(ctx)
	for _, d := range s.dispatchers {
		working.Go(func() error { return d.Run(ctx) })
	}
	return running, sync.OnceValue(func() error {
		cancel()
		return working.Wait()
	})
}

// play pushes, drains, and stops the dispatchers in that order. A demo that stays does not stop them.
func (s *stage) play(ctx context.Context, stderr io.Writer, stop func() error) (seen, error) {
	var showing errgroup.Group
	watched, hide := context.WithCancel(ctx)
	defer hide()
	showing.Go(func() error {
		progress.Show(watched, stderr, lineEvery, func() string { return s.tally.line(time.Now()) })
		return nil
	})

	pushing, end := context.WithTimeout(ctx, time.Duration(s.opts.Seconds)*time.Second)
	defer end()
	s.push(pushing)
	drainErr := s.drain(ctx)
	hide()
	_ = showing.Wait() // returns no error
	if !s.opts.Stay || ctx.Err() != nil {
		if err := stop(); err != nil {
			return seen{}, err
		}
	}
	if drainErr != nil {
		return seen{}, drainErr
	}
	waiting, err := s.unfinished(context.WithoutCancel(ctx))
	if err != nil {
		return seen{}, err
	}
	s.reported.Store(true)
	return seen{
		result: s.history.Check(), refused: s.tally.refusals(), waiting: waiting, spread: s.lateness.spread(),
		interrupted: ctx.Err() != nil,
	}, nil
}

// drain waits until the bucket is empty, until ctx ends, or until it has taken far longer than expected.
func (s *stage) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(2*capacitySecs)+drainSpare)
	defer cancel()
	ticker := time.NewTicker(drainCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		switch left, err := s.unfinished(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case left == 0:
			return nil
		}
	}
}

// unfinished returns the number of jobs that the store still holds.
func (s *stage) unfinished(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	infos, err := s.operator.BucketInfos(ctx)
	if err != nil {
		return 0, err
	}
	return int(infos[0].Unfinished), nil
}
