package httpapi_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
)

// The author of a command is its key and the key's caller. Only where there are no keys it is the user that the command names.
func TestAuthorOfACommand(t *testing.T) {
	t.Parallel()
	deploy := keyOf("deploy", []string{apikey.AllBuckets}, apikey.RoleAdmin)
	deploy.Caller = "acme"
	for _, test := range []struct {
		keys       []apikey.Key
		user, want string
	}{
		{[]apikey.Key{deploy}, "mallory", "key deploy of acme"},
		{nil, "alice", "user alice, a program on the dispatcher's machine"},
		{nil, "", "a program on the dispatcher's machine"},
		{nil, "a\u00e4 (key root)", "a program on the dispatcher's machine"},
		{nil, strings.Repeat("a", 1000), "a program on the dispatcher's machine"},
	} {
		conn := connect(t, redistest.Start(t).URL())
		api := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, conn, nil, buckets(t)), Keys: test.keys}))
		for range 2 {
			api.as("deploy", "POST", "/v1/buckets/roomy/pause", "", httpapi.HeaderUser, test.user).want(200, "")
		}
		must.Equal(t, recordsOf(t, conn)[0].Author, test.want, "user %q with %d keys", test.user, len(test.keys))
		// Whoever a program says it is, it takes one share.
		must.Equal(t, conn.ZCard(t.Context(), "tundish:{fleet}:changes:changed").Val(), 1, "shares")
	}
}
