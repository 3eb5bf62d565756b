package httpapi_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// The API of this process answers as a server does, in the name of its author, and leaves the error of Redis.
func TestLocal(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	client := http.Client{Transport: httpapi.NewLocal(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, buckets(t))}, "user ada")}
	do := func(method, path, body string) (status int, text string, cause error) {
		t.Helper()
		ctx, kept := httpapi.WithCause(t.Context())
		r := must.Get(http.NewRequestWithContext(ctx, method, "http://any.example"+path, strings.NewReader(body)))(t)
		r.Header.Set("Content-Type", "application/json")
		response, err := client.Do(r)
		must.OK(t, err)
		defer response.Body.Close()
		read := must.Get(io.ReadAll(response.Body))(t)
		a := &answer{t: t, status: response.StatusCode, header: response.Header, text: string(read)}
		a.wantContract(r)
		return a.status, a.text, *kept
	}
	if status, text, cause := do("POST", "/v1/buckets/small/pause", `{"reason":"leak"}`); status != 200 || !strings.Contains(text, `"by":"user ada","reason":"leak"`) || cause != nil {
		t.Errorf("%d %s, cause %v", status, text, cause)
	}
	if status, text, cause := do("GET", "/v1/buckets/nobody", ""); status != 404 || !strings.Contains(text, `"code":"unknown-bucket"`) || cause != nil {
		t.Errorf("%d %s, cause %v", status, text, cause)
	}
	store.Kill()
	if status, text, cause := do("GET", "/v1/buckets", ""); status != 503 || !errors.Is(cause, syscall.ECONNREFUSED) {
		t.Errorf("%d %s, cause %v", status, text, cause)
	}
}

// A server elsewhere never tells its caller what Redis has said.
func TestCauseStaysHere(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, store.URL()), nil, buckets(t))}))
	store.Kill()
	ctx, cause := httpapi.WithCause(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", ops.http.URL+"/v1/buckets", http.NoBody)
	must.OK(t, err)
	response, err := ops.http.Client().Do(r)
	must.OK(t, err)
	_ = response.Body.Close()
	if response.StatusCode != 503 || *cause != nil {
		t.Errorf("%d, cause %v", response.StatusCode, *cause)
	}
}
