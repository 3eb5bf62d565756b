package redisconn

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
)

// A password that changes in Redis and in its file: each client goes on, and at most one command fails for each connection that Redis has closed.
func TestPasswordChanges(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	var password atomic.Value
	password.Store("")
	client, err := Connect(server.URL(), Options{Credentials: func() (string, string, error) {
		return "", password.Load().(string), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, next := range []string{"", "two", "three"} {
		if next != "" {
			if err := admin.ConfigSet(t.Context(), "requirepass", next).Err(); err != nil {
				t.Fatal(err)
			}
			password.Store(next)
			if err := admin.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err(); err != nil {
				t.Fatal(err)
			}
		}
		failed := 0
		for range 50 {
			if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
				failed++
				t.Log(err)
			}
		}
		if failed > 1 {
			t.Errorf("password %q: %d commands failed, want at most 1", next, failed)
		}
	}
	password.Store("one")
	if err := admin.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err = client.Ping(t.Context()).Err(); FailureOf(err) == Forbidden {
			return
		}
	}
	t.Errorf("with an old password: %v", err)
}

func TestPasswordCannotBeRead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, err := Connect(server.URL(), Options{Credentials: func() (string, string, error) { return "", "", errors.New("no such file") }})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Ping(t.Context()).Err(); FailureOf(err) != Unreachable || ReplyLost(err) {
		t.Errorf("%v is %v", err, FailureOf(err))
	}
}

// Sentinels with a password of their own that changes: the client of the master never sends it to the master.
func TestPasswordOfSentinelsChanges(t *testing.T) {
	t.Parallel()
	trio := redistest.StartSentinel(t)
	var password atomic.Value
	url := "redis+sentinel://" + trio.Sentinels[0].Addr() + "," + trio.Sentinels[1].Addr() + "," + trio.Sentinels[2].Addr() + "/" + redistest.MasterName
	set := func(next string) {
		t.Helper()
		for _, sentinel := range trio.Sentinels {
			admin := redis.NewClient(&redis.Options{Addr: sentinel.Addr(), Password: password.Load().(string)})
			if err := admin.Do(t.Context(), "acl", "setuser", "default", "resetpass", ">"+next).Err(); err != nil {
				t.Fatal(err)
			}
			_ = admin.Close()
		}
		password.Store(next)
	}
	password.Store("")
	for _, next := range []string{"one", "two"} {
		set(next)
		client, err := Connect(url, Options{SentinelCredentials: func() (string, string, error) { return "", password.Load().(string), nil }})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Errorf("password %q: %v", next, err)
		}
		_ = client.Close()
	}
	wrong, err := Connect(url, Options{SentinelCredentials: func() (string, string, error) { return "", "old", nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	if err := wrong.Ping(t.Context()).Err(); FailureOf(err) != Forbidden {
		t.Errorf("an old password: %v is %v", err, FailureOf(err))
	}
}
