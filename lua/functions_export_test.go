package lua

import "github.com/redis/go-redis/v9"

// AsFunctionsDue is AsFunctions. After due the next run finds that it is time for a check.
func AsFunctionsDue(client redis.UniversalClient, report func(error)) (due func()) {
	f := &asFunctions{client: client, report: report}
	client.AddHook(f)
	return func() { f.checkAt.Store(1) }
}
