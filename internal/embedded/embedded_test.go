package embedded_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/embedded"
	"github.com/tundish-io/tundish/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) *embedded.Store {
	t.Helper()
	store := must.Get(embedded.Start("127.0.0.1:0"))(t)
	t.Cleanup(store.Close)
	return store
}

func connect(t *testing.T, url string) *redis.Client {
	t.Helper()
	options := must.Get(redis.ParseURL(url))(t)
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

func TestStore(t *testing.T) {
	t.Parallel()
	store := start(t)
	if store.URL() != "redis://"+store.Addr() || strings.HasSuffix(store.Addr(), ":0") {
		t.Errorf("URL = %q, Addr = %q", store.URL(), store.Addr())
	}
	client := connect(t, store.URL())
	must.OK(t, client.Set(t.Context(), "key", "value", 0).Err())
	must.Equal(t, must.Get(client.Get(t.Context(), "key").Result())(t), "value", "Get")
}

func TestKeysExpire(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t).URL())
	must.OK(t, client.Set(t.Context(), "key", "value", time.Millisecond).Err())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for {
		n, err := client.Exists(ctx, "key").Result()
		if err != nil {
			t.Fatalf("the key has not expired: %v", err)
		}
		if n == 0 {
			return
		}
	}
}

func TestAddressTaken(t *testing.T) {
	t.Parallel()
	store := start(t)
	_, err := embedded.Start(store.Addr())
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("Start on a taken address = %v", err)
	}
	for _, want := range []string{store.Addr(), "redis.embedded_listen", "stop it"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %v", want, err)
		}
	}
	store.Close()
	store.Close() // a second time is harmless
	again, err := embedded.Start(store.Addr())
	if err != nil {
		t.Fatalf("Start after Close = %v", err)
	}
	again.Close()
}

func TestAddressInvalid(t *testing.T) {
	t.Parallel()
	_, err := embedded.Start("nowhere")
	if err == nil || !strings.Contains(err.Error(), "redis.embedded_listen") {
		t.Errorf("Start = %v, want an error that names the key", err)
	}
}
