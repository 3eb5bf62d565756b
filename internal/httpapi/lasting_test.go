package httpapi_test

import (
	"crypto/sha256"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/redistest"
)

// A stream ends as soon as its key leaves the configuration, has another secret or loses a right, and goes on with a key that has more.
func TestStreamsEndWithTheirRights(t *testing.T) {
	t.Parallel()
	every := []string{apikey.AllBuckets}
	reader := keyOf("reader", []string{"roomy", "small"}, apikey.RoleRead, apikey.RoleOperate)
	for name, test := range map[string]struct {
		keys []apikey.Key
		goes bool // on
	}{
		"the key is gone": {keys: []apikey.Key{keyOf("other", every, apikey.RoleRead)}},
		"no keys":         {},
		"another secret":  {keys: []apikey.Key{{Name: "reader", SHA256: [][32]byte{sha256.Sum256([]byte("x"))}, Roles: reader.Roles, Buckets: reader.Buckets}}},
		"a bucket less":   {keys: []apikey.Key{keyOf("reader", []string{"roomy"}, reader.Roles...)}},
		"a role less":     {keys: []apikey.Key{keyOf("reader", every, apikey.RoleOperate)}},
		"more rights":     {keys: []apikey.Key{keyOf("reader", every, apikey.RoleAdmin)}, goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, connect(t, redistest.Start(t).URL()), nil, buckets(t)[:1]), Keys: []apikey.Key{reader}})
			api := serve(t, handler)
			t.Cleanup(handler.Drain) // ends what goes on
			stream := openStream(t, api.http.URL+"/v1/stream?bucket=roomy", "reader")
			if stream.status != http.StatusOK {
				t.Fatal(stream.status)
			}
			handler.SetKeys(test.keys)
			if test.goes {
				text := make([]byte, 1)
				if _, err := io.ReadFull(stream.body, text); err != nil {
					t.Error(err)
				}
				handler.Drain()
			}
			if _, err := io.ReadAll(stream.body); err != nil { // its end, without which the test does not end
				t.Error(err)
			}
		})
	}
}

// A request that waits for a result ends with its key, and is not told the result.
func TestWaitsEndWithTheirRights(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	client := newClient(t, connect(t, store.URL()), nil)
	t.Cleanup(client.Close)
	key := keyOf("sender", []string{apikey.AllBuckets}, apikey.RoleEnqueue)
	handler := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: client, CheckJob: checkJob, Keys: []apikey.Key{key}})
	api := serve(t, handler)
	answered := make(chan *answer, 1)
	go func() { answered <- api.as("sender", "POST", jobs, job(""), "Prefer", "wait=3600") }()
	for { // until it waits
		if n := store.Client().Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Val(); strings.Contains(n.(string), "cmd=") {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("it does not wait")
		}
	}
	handler.SetKeys([]apikey.Key{keyOf("other", nil, apikey.RoleRead)})
	if a := <-answered; a.status != http.StatusAccepted && a.status != http.StatusUnauthorized {
		t.Errorf("%d: %s", a.status, a.text)
	}
}
