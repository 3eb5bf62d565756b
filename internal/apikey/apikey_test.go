package apikey_test

import (
	"crypto/sha256"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/must"
)

// A ring grants a key what it had while it has all of that, and the secret that was shown.
func TestGrants(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("secret"))
	then := apikey.Key{Name: "a", SHA256: [][32]byte{sum}, Roles: []apikey.Role{apikey.RoleRead, apikey.RoleOperate}, Buckets: []string{"x", "y"}, Flows: []string{"f"}}
	shown := apikey.NewRing([]apikey.Key{then}).Find("secret")
	for name, test := range map[string]struct {
		change func(k *apikey.Key)
		want   bool
	}{
		"the same":         {func(*apikey.Key) {}, true},
		"another name":     {func(k *apikey.Key) { k.Name = "b" }, false},
		"another caller":   {func(k *apikey.Key) { k.Caller = "b" }, false},
		"another secret":   {func(k *apikey.Key) { k.SHA256 = [][32]byte{{1}} }, false},
		"a second secret":  {func(k *apikey.Key) { k.SHA256 = [][32]byte{{1}, sum} }, true},
		"a role less":      {func(k *apikey.Key) { k.Roles = k.Roles[:1] }, false},
		"admin":            {func(k *apikey.Key) { k.Roles = []apikey.Role{apikey.RoleAdmin} }, true},
		"a bucket less":    {func(k *apikey.Key) { k.Buckets = k.Buckets[:1] }, false},
		"all buckets":      {func(k *apikey.Key) { k.Buckets = []string{apikey.AllBuckets} }, true},
		"no flow":          {func(k *apikey.Key) { k.Flows = []string{"g"} }, false},
		"all flows":        {func(k *apikey.Key) { k.Flows = nil }, true},
		"bound to a group": {func(k *apikey.Key) { k.Groups = []string{"g"} }, false},
	} {
		now := then
		test.change(&now)
		must.Equal(t, apikey.NewRing([]apikey.Key{now}).Grants(shown), test.want, "%s", name)
	}
	if (apikey.Ring{}).Grants(shown) {
		t.Error("no keys grant something")
	}
}
