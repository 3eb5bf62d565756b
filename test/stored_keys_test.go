package test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// readKeys reads all that is in Redis.
func readKeys(t *testing.T, client *redis.Client) map[string]*storedAsText {
	t.Helper()
	ctx, found := t.Context(), map[string]*storedAsText{}
	keys, err := client.Keys(ctx, "*").Result()
	for _, key := range keys {
		if err != nil {
			break
		}
		value := &storedAsText{}
		switch client.Type(ctx, key).Val() {
		case "hash":
			value.Hash, err = client.HGetAll(ctx, key).Result()
		case "list":
			value.List, err = client.LRange(ctx, key, 0, -1).Result()
		case "zset":
			value.Sorted = map[string]string{}
			for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				value.Sorted[fmt.Sprint(z.Member)] = fmt.Sprintf("%.0f", z.Score)
			}
		default:
			value.Text, err = client.Get(ctx, key).Result()
		}
		value.Expires = max(client.PTTL(ctx, key).Val(), 0)
		found[key] = value
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// writeKeys writes what readKeys has read.
func writeKeys(t *testing.T, client *redis.Client, keys map[string]*storedAsText) {
	t.Helper()
	do := func(args ...any) {
		t.Helper()
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range keys {
		for field, text := range value.Hash {
			do("HSET", key, field, text)
		}
		for _, text := range value.List {
			do("RPUSH", key, text)
		}
		for member, score := range value.Sorted {
			do("ZADD", key, score, member)
		}
		if value.Text != "" {
			do("SET", key, value.Text)
		}
		if value.Expires > 0 {
			do("PEXPIRE", key, value.Expires.Milliseconds())
		}
	}
}
