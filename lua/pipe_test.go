package lua_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/lua"
)

// Where nothing was sent, each command of a pipeline has the error that says why.
func TestErrorOfAPipeline(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), Username: "nobody", Password: "wrong", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	calls := []lua.Call{{Script: lua.Probe, Keys: []string{"a"}}, {Script: lua.Probe, Keys: []string{"b"}}}
	for i, result := range lua.RunAll(t.Context(), client, calls) {
		if result.Err == nil || !strings.Contains(result.Err.Error(), "WRONGPASS") {
			t.Errorf("call %d: %v, want the error of Redis", i, result.Err)
		}
	}
	pipe := client.Pipeline()
	get := pipe.Get(t.Context(), "x")
	if lua.Exec(t.Context(), pipe); get.Err() == nil || !strings.Contains(get.Err().Error(), "WRONGPASS") {
		t.Errorf("GET: %v", get.Err())
	}
}
