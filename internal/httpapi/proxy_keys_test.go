package httpapi_test

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/stored"
)

func TestProxyKeys(t *testing.T) {
	t.Parallel()
	bound := keyOf("elsewhere", []string{"slow"}, apikey.RoleEnqueue)
	p := newProxyRig(t, keyOf("ours", []string{"*"}, apikey.RoleEnqueue), keyOf("reader", []string{"*"}, apikey.RoleRead), bound)
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	for _, headers := range [][]string{
		{"Tundish-Key", "ours"},
		{"Authorization", "Bearer ours"}, {"Authorization", "token ours"}, {"Authorization", basic("ours:")}, {"Authorization", basic("me:ours")},
		{"X-Api-Key", "ours"}, {"Api-Key", "ours"},
		{"Authorization", "ours"}, {"Authorization", "ApiKey ours"}, {"Authorization", `Token token="ours"`}, {"X-Goog-Api-Key", "ours"}, {"Private-Token", "ours"},
		{"Tundish-Key", "ours", "X-Algolia-Api-Key", "ours", "X-Second", "Bearer ours"},
		{"Tundish-Key", "ours", "Authorization", "Bearer leaked-secret", "X-Api-Key", "leaked-secret", "X-Shop-Token", "leaked-secret", "Cookie", "leaked-secret"},
	} {
		p.do("GET", "/v1/proxy/api/x?a=%2B&key=ours&b=", "", headers...).want(200, "")
		call := p.called()[0]
		must.Equal(t, call.URL.RawQuery, "fixed=1&a=%2B&b=", "%v: the API is asked for", headers)
		must.Equal(t, call.Header.Get("Authorization"), "Bearer "+vendorKey, "%v: the API sees", headers)
		for name, values := range call.Header {
			if slices.Contains(values, "ours") || slices.Contains(values, "leaked-secret") {
				t.Errorf("%v: %s goes on: %v", headers, name, values)
			}
		}
	}
	for _, headers := range [][]string{nil, {"Authorization", "Bearer other"}, {"Authorization", "Basic ?"}, {"Authorization", "Digest other"}, {"X-Api-Key", ""}} {
		p.do("GET", "/v1/proxy/api/x", "", headers...).want(401, "unauthorized")
	}
	p.do("GET", "/v1/proxy/api/x", "", "X-Api-Key", "reader").want(403, "forbidden")
	p.do("GET", "/v1/proxy/api/x", "", "X-Api-Key", "elsewhere").want(403, "forbidden")
	// A key in Api-Key is for the proxy only.
	p.do("GET", "/v1/buckets/api/jobs/x", "", "X-Api-Key", "ours").want(401, "unauthorized")

	// Nothing that a client has sent as its credentials is in Redis, not even while the job waits.
	ctx, leave := context.WithCancel(t.Context())
	left := p.start(ctx, "slow", "Tundish-Key", "ours", "Authorization", "Bearer leaked-secret", "X-Shop-Token", "leaked-secret")
	p.untilJobs("slow", 1)
	for _, key := range p.redis.Keys(t.Context(), "*").Val() {
		dump, err := p.redis.Dump(t.Context(), key).Result()
		for _, secret := range []string{"ours", "leaked-secret", vendorKey} {
			if err == nil && strings.Contains(dump, secret) {
				t.Errorf("%s is in %s", secret, key)
			}
		}
	}
	for _, kind := range []string{"body", "meta"} {
		for id, text := range p.redis.HGetAll(t.Context(), stored.Key("slow", "")+kind).Val() {
			if strings.Contains(text, "secret") || strings.Contains(text, "ours") {
				t.Errorf("%s %s: %s", kind, id, text)
			}
		}
	}
	leave()
	<-left
	p.untilJobs("slow", 0)
}
