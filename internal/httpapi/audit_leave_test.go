package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper/audit"
)

// leaver ends a request once its record has begun.
type leaver struct {
	leave context.CancelFunc
}

func (l leaver) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l leaver) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l leaver) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.Contains(fmt.Sprint(cmd.Args()), "pauseBucket") {
			l.leave()
		}
		return err
	}
}

// A change whose client has left is made, and its record says so: it said that the change had failed.
func TestChangeOfAClientThatLeft(t *testing.T) {
	t.Parallel()
	conn := connect(t, redistest.Start(t).URL())
	ctx, leave := context.WithCancel(t.Context())
	conn.AddHook(leaver{leave: leave})
	handler := httpapi.NewOps(httpapi.OpsConfig{
		Buckets: newOperator(t, conn, nil, buckets(t)), Keys: []apikey.Key{keyOf("ops", []string{apikey.AllBuckets}, apikey.RoleOperate)},
	})
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/buckets/roomy/pause", strings.NewReader(`{"reason":"x"}`))
	r.Header.Set("Authorization", "Bearer ops")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if record := recordsOf(t, conn)[0]; ctx.Err() == nil || record.Outcome != audit.Done {
		t.Errorf("the client left: %v; %d, the record has %+v", ctx.Err(), w.Code, record)
	}
}
