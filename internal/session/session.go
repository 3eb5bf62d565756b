// Package session keeps the logins of the console in Redis, so that any process can read them. A session is bound to the digest of the secret with which
// it began: it ends when the key is removed from the configuration, or has another secret.
package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/lua"
)

const (
	// Life is how long a login is valid.
	Life = 12 * time.Hour

	// Most bounds the sessions of a key: one more ends the oldest.
	Most = 20
)

// ErrNone says that there is no such session.
var ErrNone = errors.New("session: there is none")

// Store keeps sessions. It is safe for concurrent use.
type Store struct{ redis redis.UniversalClient }

// New returns the sessions in a Redis. It makes no round trip.
func New(client redis.UniversalClient) *Store { return &Store{client} }

// Session is a session as operators see it.
type Session struct {
	// Identifies the session. It cannot be used to log in.
	ID string `json:"id"`

	// The name of the API key.
	Key string `json:"key"`

	// Of the client that has logged in.
	Address string `json:"address"`

	Began time.Time `json:"began"`
	Ends  time.Time `json:"ends"`
}

// shortDigest is the number of hexadecimal digits of a digest in names.
const shortDigest = 16

// digest is a digest of a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// refOf names a key in the cookies and in Redis.
func refOf(key string) string { return digest("key " + key)[:shortDigest] }

func redisKey(ref string) string { return "tundish:{fleet}:sessions:" + ref }

// Begin begins a session for the holder of a key's secret, and returns the content of the cookie. One round trip. Redis has a digest of it: a reader of
// Redis cannot log in.
func (s *Store) Begin(ctx context.Context, key *apikey.Key, secret, address string) (cookie string, err error) {
	ref, token := refOf(key.Name), rand.Text()+rand.Text()
	_, err = lua.BeginSession.Numbers(ctx, s.redis, []string{redisKey(ref)}, digest(token), digest(secret), address, Life.Microseconds(), Most)
	if err != nil {
		return "", fmt.Errorf("begin a session: %w", err)
	}
	return ref + "." + token, nil
}

// split splits a cookie into its parts.
func split(cookie string) (ref, session string, ok bool) {
	ref, token, ok := strings.Cut(cookie, ".")
	return ref, digest(token), ok && len(ref) == shortDigest
}

// Find returns the key of a session, or [ErrNone]. One round trip.
func (s *Store) Find(ctx context.Context, ring apikey.Ring, cookie string) (*apikey.Key, error) {
	ref, name, ok := split(cookie)
	at := slices.IndexFunc(ring, func(k apikey.Key) bool { return refOf(k.Name) == ref })
	if !ok || at < 0 {
		return nil, ErrNone
	}
	pipe := s.redis.Pipeline()
	now, stored := pipe.Time(ctx), pipe.HGet(ctx, redisKey(ref), name)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("look for a session: %w", err)
	}
	one, secret, ok := read(stored.Val())
	if !ok || !now.Val().Before(one.Ends) {
		return nil, ErrNone
	}
	if key := ring.Shown(ring[at].Name, secret); key != nil {
		return key, nil
	}
	return nil, ErrNone
}

// read parses a stored session, and the digest of its secret.
func read(stored string) (one Session, secret [sha256.Size]byte, ok bool) {
	const fields = 4
	parts := strings.SplitN(stored, " ", fields)
	if len(parts) < fields {
		return one, secret, false
	}
	began, _ := strconv.ParseInt(parts[0], 10, 64)
	ends, _ := strconv.ParseInt(parts[1], 10, 64)
	sum, err := hex.DecodeString(parts[2])
	return Session{Address: parts[3], Began: time.UnixMicro(began).UTC(), Ends: time.UnixMicro(ends).UTC()}, [sha256.Size]byte(append(sum, secret[:]...)), err == nil
}

// End ends the session of a cookie. One round trip.
func (s *Store) End(ctx context.Context, cookie string) error {
	ref, name, ok := split(cookie)
	if !ok {
		return nil
	}
	if err := s.redis.HDel(ctx, redisKey(ref), name).Err(); err != nil {
		return fmt.Errorf("end a session: %w", err)
	}
	return nil
}

// List returns the sessions of keys, the newest first. One round trip.
func (s *Store) List(ctx context.Context, keys apikey.Ring) ([]Session, error) {
	sessions := []Session{}
	if len(keys) == 0 {
		return sessions, nil
	}
	pipe := s.redis.Pipeline()
	now := pipe.Time(ctx)
	all := make([]*redis.MapStringStringCmd, len(keys))
	for i := range keys {
		all[i] = pipe.HGetAll(ctx, redisKey(refOf(keys[i].Name)))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	for i := range keys {
		for name, stored := range all[i].Val() {
			one, secret, ok := read(stored)
			if ok && now.Val().Before(one.Ends) && keys.Shown(keys[i].Name, secret) != nil {
				one.ID, one.Key = refOf(keys[i].Name)+"-"+name[:shortDigest], keys[i].Name
				sessions = append(sessions, one)
			}
		}
	}
	slices.SortFunc(sessions, func(a, b Session) int { return cmp.Or(b.Began.Compare(a.Began), cmp.Compare(a.ID, b.ID)) })
	return sessions, nil
}

// EndByID ends the session of an id, if it is of one of the keys, and reports whether there was one. Two round trips.
func (s *Store) EndByID(ctx context.Context, keys apikey.Ring, id string) (bool, error) {
	ref, short, _ := strings.Cut(id, "-")
	if len(short) != shortDigest || !slices.ContainsFunc(keys, func(k apikey.Key) bool { return refOf(k.Name) == ref }) {
		return false, nil
	}
	names, err := s.redis.HKeys(ctx, redisKey(ref)).Result()
	if err != nil {
		return false, fmt.Errorf("end a session: %w", err)
	}
	at := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, short) })
	if at < 0 {
		return false, nil
	}
	n, err := s.redis.HDel(ctx, redisKey(ref), names[at]).Result()
	if err != nil {
		return false, fmt.Errorf("end a session: %w", err)
	}
	return n > 0, nil
}
