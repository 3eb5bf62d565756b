package admission

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

type namerKey struct{}

// WithNamer returns a context in which [Limiter.Ask] and [Limiter.AskKey] ask for a client that names the keys of others, such as a gateway, by a name of
// the client. The keys for which a limit has a state are shared by such clients: one alone may have all of [Limit.MaxKeys], and when these are there,
// another one may have as many more as it leaves free of twice MaxKeys. Keys beyond that count as one. Questions without a namer take what is free.
func WithNamer(ctx context.Context, name string) context.Context {
	sum := sha256.Sum256([]byte("namer\n" + name))
	const namers = 1_000_000 // are told apart
	return context.WithValue(ctx, namerKey{}, fmt.Sprintf("%06d", binary.BigEndian.Uint64(sum[:8])%namers))
}

// namerOf returns the digits of the namer as scripts know it, "" of none.
func namerOf(ctx context.Context) string {
	digits, _ := ctx.Value(namerKey{}).(string)
	return digits
}
