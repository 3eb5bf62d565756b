package session_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

func keyOf(name string) apikey.Key {
	return apikey.Key{Name: name, SHA256: [][32]byte{sha256.Sum256([]byte(name))}, Roles: []apikey.Role{apikey.RoleAdmin}}
}

// A key has a bounded number of sessions: the oldest goes, and those of other keys stay.
func TestMost(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, client redis.UniversalClient) {
		s, ring := session.New(client), apikey.NewRing([]apikey.Key{keyOf("a"), keyOf("b")})
		begin := func(key string) string {
			cookie := must.Get(s.Begin(t.Context(), ring.Named(key), key, "192.0.2.1"))(t)
			return cookie
		}
		other := begin("b")
		var cookies []string
		const often = 330
		for range often {
			cookies = append(cookies, begin("a"))
		}
		for i, cookie := range cookies {
			key, err := s.Find(t.Context(), ring, cookie)
			if lives := i >= often-session.Most; lives != (err == nil) || lives && key.Name != "a" || !lives && !errors.Is(err, session.ErrNone) {
				t.Errorf("session %d: %v", i, err)
			}
		}
		if _, err := s.Find(t.Context(), ring, other); err != nil {
			t.Error(err)
		}
		list, err := s.List(t.Context(), ring)
		if err != nil || len(list) != session.Most+1 || list[len(list)-1].Key != "b" || list[0].Address != "192.0.2.1" {
			t.Fatalf("%v: %+v", err, list)
		}
		newest := list[0]
		for _, want := range []bool{true, false} {
			if ended, err := s.EndByID(t.Context(), ring, newest.ID); err != nil || ended != want {
				t.Errorf("%t, %v", ended, err)
			}
		}
		if ended, err := s.EndByID(t.Context(), ring[1:], list[1].ID); err != nil || ended {
			t.Error("a session of another key is ended")
		}
		if _, err := s.Find(t.Context(), ring, cookies[often-1]); !errors.Is(err, session.ErrNone) {
			t.Errorf("it was ended: %v", err)
		}
		if keys := client.Keys(t.Context(), "tundish:*").Val(); len(keys) != 2 {
			t.Errorf("%q", keys)
		}
	})
}

// A session ends after its life, with its key, with the secret of its key, and is none of another key.
func TestEnds(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	server.SetTime(now)
	s, ring := session.New(client), apikey.NewRing([]apikey.Key{keyOf("a"), keyOf("b")})
	cookie := must.Get(s.Begin(t.Context(), ring.Named("a"), "a", "::1"))(t)
	rotated := keyOf("a")
	rotated.SHA256 = [][32]byte{sha256.Sum256([]byte("another"))}
	find := func(ring []apikey.Key, cookie string) error {
		_, err := s.Find(context.Background(), apikey.NewRing(ring), cookie)
		return err
	}
	for name, got := range map[string]error{
		"without its key": find([]apikey.Key{keyOf("b")}, cookie), "with another secret": find([]apikey.Key{rotated}, cookie), "nothing": find(ring, ""),
		"a part": find(ring, cookie[:20]), "another": find(ring, cookie+"x"),
	} {
		if !errors.Is(got, session.ErrNone) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if err := find(ring, cookie); err != nil {
		t.Error(err)
	}
	server.SetTime(now.Add(session.Life))
	if err := find(ring, cookie); !errors.Is(err, session.ErrNone) {
		t.Errorf("after its life: %v", err)
	}
	fmt.Fprintln(t.Output(), cookie)
}
