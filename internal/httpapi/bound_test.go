package httpapi_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// boundTo is a key for enqueueing into some flows or groups.
func boundTo(name string, flows, groups []string) apikey.Key {
	key := keyOf(name, []string{apikey.AllBuckets}, apikey.RoleEnqueue)
	key.Flows, key.Groups = flows, groups
	return key
}

// A key that is bound has no job signed with the secrets of a flow that is not its own.
func TestKeysBoundToFlows(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		flow, group string // what names them
		key         apikey.Key
		job         string
		status      int
	}{
		"its flow":                 {"job", "", boundTo("k", []string{"acme", "b"}, nil), `"flow":"acme"`, 202},
		"another's":                {"job", "", boundTo("k", []string{"acme"}, nil), `"flow":"evil"`, 403},
		"no flow":                  {"job", "", boundTo("k", []string{"acme"}, nil), "", 400},
		"not bound":                {"job", "", boundTo("k", nil, nil), `"flow":"evil"`, 202},
		"bound to groups only":     {"job", "", boundTo("k", nil, []string{"acme"}), `"flow":"evil"`, 202},
		"no flows":                 {"", "", boundTo("k", []string{"acme"}, nil), `"flow":"evil"`, 202},
		"a host":                   {"host", "", boundTo("k", []string{"example.com"}, nil), "", 202},
		"another host":             {"host", "", boundTo("k", []string{"example.org"}, nil), `"flow":"example.org"`, 403},
		"a header":                 {"header:X-Tenant", "", boundTo("k", []string{"acme"}, nil), "", 202},
		"another header":           {"header:X-Tenant", "", boundTo("k", []string{"evil"}, nil), "", 403},
		"its group":                {"job", "job", boundTo("k", nil, []string{"acme"}), `"flow":"f","group":"acme"`, 202},
		"another's group":          {"job", "job", boundTo("k", nil, []string{"acme"}), `"flow":"f","group":"evil"`, 403},
		"its flow, another group":  {"job", "job", boundTo("k", []string{"f"}, []string{"acme"}), `"flow":"f","group":"evil"`, 403},
		"another flow, its group":  {"job", "job", boundTo("k", []string{"f"}, []string{"acme"}), `"flow":"g","group":"acme"`, 403},
		"its flow, whatever group": {"job", "job", boundTo("k", []string{"f"}, nil), `"flow":"f","group":"acme"`, 202},
	} {
		f := store(t)
		if test.flow != "" {
			settings := shaper.DefaultFlowSettings()
			settings.Key = test.flow
			f.bucket.Flow = &settings
		}
		if test.group != "" {
			settings := shaper.DefaultGroupSettings()
			settings.Key = test.group
			f.bucket.Group = &settings
		}
		api := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, CheckJob: checkJob, Keys: []apikey.Key{test.key}})
		headers := []string{"Authorization", "Bearer k", "X-Tenant", "acme"}
		w := request(api, far, "POST", jobs, job(test.job), headers...)
		if w.Code != test.status {
			t.Errorf("%s: %d, want %d: %s", name, w.Code, test.status, w.Body)
		}
		if w := request(api, far, "POST", jobs+"/batch", "["+job(test.job)+"]", headers...); len(f.got) > 0 != (test.status == 202) {
			t.Errorf("%s: in a batch %d jobs got in: %s", name, len(f.got), w.Body)
		}
	}
}

// Of others' jobs such a key sees and cancels none.
func TestBoundKeysAndJobsOfOthers(t *testing.T) {
	t.Parallel()
	f := store(t)
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	f.bucket.Flow = &flow
	reads := boundTo("reads", []string{"acme"}, nil)
	reads.Roles = append(reads.Roles, apikey.RoleRead)
	api := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, Keys: []apikey.Key{boundTo("k", []string{"acme"}, nil), reads, keyOf("free", []string{"*"}, apikey.RoleEnqueue)}})
	for _, test := range []struct {
		key, flow    string
		show, cancel int
	}{
		{"k", "acme", 200, 200}, {"k", "evil", 404, 404}, {"reads", "evil", 200, 404}, {"free", "evil", 200, 200},
	} {
		f.info = shaper.JobInfo{ID: "a", Bucket: "roomy", Flow: test.flow, Owner: ownedBy(test.key), State: shaper.StateQueued, Enqueued: time.Unix(1, 0)}
		show := request(api, far, "GET", jobs+"/a", "", "Authorization", "Bearer "+test.key).Code
		cancel := request(api, far, "DELETE", jobs+"/a", "", "Authorization", "Bearer "+test.key).Code
		if show != test.show || cancel != test.cancel {
			t.Errorf("key %s, a job of %s: shown %d, cancelled %d, want %d and %d", test.key, test.flow, show, cancel, test.show, test.cancel)
		}
	}
	f.info = shaper.JobInfo{ID: "a", Bucket: "roomy", Owner: ownedBy("k"), State: shaper.StateDone} // settled: its flow is not known
	must.Equal(t, request(api, far, "GET", jobs+"/a", "", "Authorization", "Bearer k").Code, 200, "a settled job")
}

func ownedBy(caller string) shaper.Owner { return shaper.Owner{Mark: shaper.CallerMark(caller)} }

// While a key is given another secret, both open.
func TestTwoSecretsOfAKey(t *testing.T) {
	t.Parallel()
	key := keyOf("old", []string{"*"}, apikey.RoleRead)
	key.SHA256 = append(key.SHA256, sha256.Sum256([]byte("new")))
	other := keyOf("other", []string{"*"}, apikey.RoleRead)
	api := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t), Keys: []apikey.Key{key, other}})
	for secret, want := range map[string]int{"old": 200, "new": 200, "other": 200, "newer": 401, "": 401} {
		must.Equal(t, request(api, far, "GET", jobs+"/a", "", "Authorization", "Bearer "+secret).Code, want, "secret %q", secret)
	}
}
