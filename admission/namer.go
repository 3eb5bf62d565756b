package admission

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

type namerKey struct{}

// WithNamer returns a context in which [Limiter.Ask] and [Limiter.AskKey] count new keys for a client, by its name. Use it for a client that
// names the keys of others, such as a gateway. Clients share the keys for which a limit has a state. One alone may use all of [Limit.MaxKeys].
// Then another one may use as many more as it leaves free of twice MaxKeys. Keys beyond that count as one. Questions without a namer take what
// is free.
func WithNamer(ctx context.Context, name string) context.Context {
	sum := sha256.Sum256([]byte("namer\n" + name))
	const namers = 1_000_000 // are distinguished
	return context.WithValue(ctx, namerKey{}, fmt.Sprintf("%06d", binary.BigEndian.Uint64(sum[:8])%namers))
}

// namerOf returns the digits of the namer as scripts know it, "" without a namer.
func namerOf(ctx context.Context) string {
	digits, _ := ctx.Value(namerKey{}).(string)
	return digits
}
