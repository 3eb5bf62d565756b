package httpapi_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
)

// Why of a bucket that nobody knows is an error, and an empty one with dead letters says so.
func TestWhyByAPI(t *testing.T) {
	t.Parallel()
	conn := connect(t, redistest.Start(t).URL())
	api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, conn, nil, buckets(t)[:1])}))
	api.do("GET", "/v1/buckets/none/why", "").want(404, "unknown-bucket")
	a := api.do("GET", "/v1/buckets/roomy/why", "").want(200, "")
	a.has("code", "empty")
	a.has("sentence", "Nothing waits")
	api.do("POST", "/v1/buckets/roomy/pause", "").want(200, "") // it is in Redis now
	must.OK(t, conn.ZAdd(t.Context(), stored.Key("roomy", "dead"), redis.Z{Member: "a", Score: 1783228800000000}).Err())
	a = api.do("GET", "/v1/buckets/roomy/why", "").want(200, "")
	if text, _ := a.json["sentence"].(string); !strings.Contains(text, "dead letters: 1; `dispatcher dead list roomy`") {
		t.Error(a.text)
	}
}
