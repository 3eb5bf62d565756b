package store_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/internal/rig"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Data of the version before is refused while there is something in it, with what to do, and taken over once it is empty: what
// an operator has set stays.
func TestDataOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, conn redis.UniversalClient) {
		k, ctx := store.BucketKeys("b"), t.Context()
		conn.HSet(ctx, k.ConfBefore(), "schema", 1, "revision", 0, "rate_count", 9, "rate_per", 1_000_000, "own:rate_count", 100, "set:rate_count", "7 anna")
		conn.HSet(ctx, k.Body(), "j", "0 1783228800123456 AAAAAAAAAAAcn001 \n{}")
		client := clientWith(t, conn, rig.Bucket("b", 100))
		_, err := client.Enqueue(ctx, jobOf("x"))
		if want := `bucket "b": its data has schema 1, and it holds 1 job: drain it with the version of before`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("enqueue beside a job of the version before: %v, want %q", err, want)
		}
		if n := conn.HLen(ctx, k.Body()).Val(); n != 1 || conn.Exists(ctx, k.Conf()).Val() != 0 {
			t.Errorf("%d jobs, and the data was taken over", n)
		}
		conn.Del(ctx, k.Body())
		mustEnqueue(t, client, "y")
		infos, err := client.Op.BucketInfos(ctx)
		if err != nil || infos[0].Unfinished != 1 || infos[0].Rate.Count != 9 {
			t.Errorf("after it was drained: %+v, %v", infos, err)
		}
		if fields := conn.HGetAll(ctx, k.ConfBefore()).Val(); len(fields) != 1 || fields["schema"] != "2" {
			t.Errorf("a program of the version before finds %v", fields)
		}
	})
}
