package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/apikey"
)

// sessionLife is how long a login holds.
const sessionLife = 12 * time.Hour

// sessions are the logins of visitors, in Redis, so that any process knows them. A session is bound to the digest of the secret with which it began: it
// ends where the key leaves the configuration, or has another secret.
type sessions struct{ redis redis.UniversalClient }

var errNoSession = errors.New("console: there is no such session")

// sessionKey is the key in Redis of a session. It has a digest: who reads Redis cannot log in with it.
func sessionKey(session string) string {
	sum := sha256.Sum256([]byte(session))
	return "tundish:{fleet}:session:" + hex.EncodeToString(sum[:])
}

// begin begins a session of the holder of a secret. One round trip.
func (s sessions) begin(ctx context.Context, ring apikey.Ring, secret string) (session string, key *apikey.Key, err error) {
	if key = ring.Find(secret); key == nil {
		return "", nil, errNoSession
	}
	digest := sha256.Sum256([]byte(secret))
	session = rand.Text() + rand.Text()
	if err := s.redis.Set(ctx, sessionKey(session), key.Name+" "+hex.EncodeToString(digest[:]), sessionLife).Err(); err != nil {
		return "", nil, fmt.Errorf("begin a session: %w", err)
	}
	return session, key, nil
}

// find returns the key of a session, or [errNoSession]. One round trip.
func (s sessions) find(ctx context.Context, ring apikey.Ring, session string) (*apikey.Key, error) {
	text, err := s.redis.Get(ctx, sessionKey(session)).Result()
	if err == redis.Nil { //nolint:errorlint // as the library has it
		return nil, errNoSession
	}
	if err != nil {
		return nil, fmt.Errorf("look for a session: %w", err)
	}
	name, digest, _ := strings.Cut(text, " ")
	for i := range ring {
		if ring[i].Name != name {
			continue
		}
		for _, sum := range ring[i].SHA256 {
			if hex.EncodeToString(sum[:]) == digest {
				return &ring[i], nil
			}
		}
	}
	return nil, errNoSession
}

// end ends a session. One round trip.
func (s sessions) end(ctx context.Context, session string) error {
	if err := s.redis.Del(ctx, sessionKey(session)).Err(); err != nil {
		return fmt.Errorf("end a session: %w", err)
	}
	return nil
}
