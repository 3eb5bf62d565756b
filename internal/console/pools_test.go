package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/shaper"
)

// The rate of a pool is set and reset by those who may change all buckets, and the page says what is configured and what is in force.
func TestPoolSettings(t *testing.T) {
	t.Parallel()
	s := newSite(t, keyOf("root", []string{"*"}, apikey.RoleAdmin), keyOf("oncall", []string{"*"}, apikey.RoleOperate, apikey.RoleRead), keyOf("half", []string{"flows"}, apikey.RoleAdmin))
	s.enqueue(shaper.Job{Bucket: "flows", Flow: "acme", Payload: []byte("1")})
	v := s.visitor()
	for _, key := range []string{"oncall", "half"} {
		v.login(key)
		page := v.get("/console/pools")
		page.want(t, http.StatusOK, "vendor", "1000/s")
		if strings.Contains(page.text, "pools/vendor/set") {
			t.Errorf("%s sees the form", key)
		}
		v.post("/console/pools/vendor/set", "rate", "5/s").want(t, http.StatusForbidden)
		v.post("/console/pools/vendor/reset").want(t, http.StatusForbidden)
	}
	v.login("root")
	v.get("/console/pools").want(t, http.StatusOK, `action="pools/vendor/set"`, "dispatcher pool set vendor --rate 1000/s")
	v.post("/console/pools/vendor/set", "rate", "5/s").want(t, http.StatusOK, "The rate is changed", "<td>1000/s</td><td>5/s</td>", "key root", "dispatcher pool reset vendor", "changed by an operator")
	v.post("/console/pools/vendor/set", "rate", "fast").want(t, http.StatusBadRequest, "fast")
	v.post("/console/pools/none/set", "rate", "5/s").want(t, http.StatusNotFound, "none")
	page := v.post("/console/pools/vendor/reset")
	page.want(t, http.StatusOK, "The configured settings apply again", "1000/s")
	if strings.Contains(page.text, "Changed by operators") {
		t.Error("the override is still there")
	}
	v.post("/console/pools/vendor/nothing").want(t, http.StatusNotFound)
}
