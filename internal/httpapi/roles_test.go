package httpapi_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/redistest"
)

// operated are the operations of the role operate: they lose no job and change no setting.
var operated = []string{
	"pauseBucket", "resumeBucket", "releaseBucket", "drainBucket", "stopDrain", "pauseFlow", "resumeFlow", "releaseFlow", "enableFlow", "pauseGroup", "resumeGroup",
	"releasePool", "redriveDead", "retryJobs", "pauseSchedule", "resumeSchedule", "fireSchedule",
}

// enqueued are those of the role enqueue.
var enqueued = []string{"showJob", "cancelJob", "showResult", "openBundle", "showBundle"}

// ofOwnKey are those that a key with read or operate has for its own sessions.
var ofOwnKey = []string{"listSessions", "endSession"}

// Every operation × every role: a GET is for read, what changes something for admin, and for the roles of these lists.
func TestEveryOperationAndEveryRole(t *testing.T) {
	t.Parallel()
	op := newOperator(t, connect(t, redistest.Start(t).URL()), nil, buckets(t)[:1])
	var keys []apikey.Key
	for _, role := range apikey.Roles() {
		keys = append(keys, keyOf(string(role), []string{apikey.AllBuckets}, role))
	}
	handler := httpapi.NewOps(httpapi.OpsConfig{Buckets: op, Keys: keys, Limits: &fakeLimits{}, BucketLimits: &fakeOverrides{}})
	name := regexp.MustCompile(`\{[a-z]+\}`)
	for _, d := range httpapi.Operations() {
		if !slices.Contains(d.Tags, "operator") || d.Events {
			continue
		}
		for _, role := range apikey.Roles() {
			may := role == apikey.RoleAdmin || role == apikey.RoleRead && d.Method == http.MethodGet ||
				role == apikey.RoleOperate && slices.Contains(operated, d.ID) || role == apikey.RoleEnqueue && slices.Contains(enqueued, d.ID) ||
				(role == apikey.RoleRead || role == apikey.RoleOperate) && slices.Contains(ofOwnKey, d.ID)
			w := request(handler, far, d.Method, name.ReplaceAllString(d.Path, "x"), "", "Authorization", "Bearer "+string(role))
			if refused := w.Code == http.StatusForbidden && strings.Contains(w.Body.String(), " lacks the role "); refused == may {
				t.Errorf("%s with the role %s: %d %s", d.ID, role, w.Code, w.Body)
			}
		}
	}
}
