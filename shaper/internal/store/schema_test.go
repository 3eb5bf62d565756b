package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// A program that starts on the data of a newer one changes nothing, and says what to do: a dispatcher, a client with the settings of the bucket,
// and a client with its name only. Data of the program's own schema is taken over.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		ctx, b := t.Context(), rig.Bucket("b", 100)
		b.Pool = &shaper.Pool{Name: "p", Rate: rig.PerSecond(1000)}
		mustEnqueue(t, clientWith(t, conn, b), "x")
		conf, pool := store.TaggedKeys("p", "b").Conf(), store.PoolConf("p")
		starts := map[string]func() error{
			"a dispatcher": func() error {
				s := ownerOf(t, conn, "new", nil, b)
				return s.Join(ctx, s.Known("b"))
			},
			"a client": func() error { _, err := clientWith(t, conn, b).Enqueue(ctx, jobOf("y")); return err },
			"a client with the name": func() error {
				_, err := clientWith(t, conn, shaper.Bucket{Name: "b"}).Enqueue(ctx, jobOf("z"))
				return err
			},
		}
		for what, start := range starts {
			if err := start(); err != nil {
				t.Errorf("%s, on data of its own schema: %v", what, err)
			}
		}
		for key, want := range map[string]string{
			conf: `bucket "b": its data has schema 2, this program knows 1: use a newer program`,
			pool: `pool "p": its data has schema 2, this program knows 1: use a newer program`,
		} {
			must.OK(t, conn.HSet(ctx, key, "schema", 2).Err())
			before := fmt.Sprint(conn.HGetAll(ctx, key).Val())
			for what, start := range starts {
				if key == pool && what != "a dispatcher" {
					continue // a client reads the pool's settings where the bucket is configured
				}
				if err := start(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %s", what, err, want)
				}
			}
			must.Equal(t, fmt.Sprint(conn.HGetAll(ctx, key).Val()), before, "settings in %s", key)
			must.OK(t, conn.HSet(ctx, key, "schema", 1).Err())
		}
	})
}
