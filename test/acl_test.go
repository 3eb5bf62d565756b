package test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/doctor"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

const (
	aclFile = "../deploy/redis/users.acl"
	aclUser = "tundish"
)

// direct are the commands that are sent outside of scripts, and those of which
// scripts consist are found in their text.
var direct = []string{
	"asking", "cluster|info", "cluster|slots", "eval", "evalsha", "fcall", "function|list", "function|load", "hget", "hgetall", "hkeys", "hmget", "hscan", "hset", "hsetnx", "info", "llen", "lrange", "ping", "pttl",
	"script|exists", "select", "subscribe", "time", "unsubscribe", "zcount", "zrange", "zrevrange",
}

// TestACLHasWhatIsUsed: the user may do what Tundish does, and no more.
func TestACLHasWhatIsUsed(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, command := range direct {
		used[command] = true
	}
	scripts, err := filepath.Glob("../lua/*.lua")
	pieces, piecesErr := filepath.Glob("../lua/lib/*.lua")
	if err := errors.Join(err, piecesErr); err != nil || len(scripts) == 0 || len(pieces) == 0 {
		t.Fatalf("%d scripts, %d pieces, %v", len(scripts), len(pieces), err)
	}
	scripts = append(scripts, pieces...)
	call := regexp.MustCompile(`redis\.p?call\(\s*'([A-Za-z]+)'`)
	const handed = "redis.call(command, " // by a function to which scripts say which
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Count(string(text), "redis.call(") + strings.Count(string(text), "redis.pcall(") - strings.Count(string(text), handed); all != len(call.FindAll(text, -1)) {
			t.Errorf("%s: a command is not a literal, so that nobody can list it", path)
		}
		if strings.Contains(string(text), handed) {
			for _, match := range regexp.MustCompile(`\('([A-Z]+)', `).FindAllSubmatch(text, -1) {
				used[strings.ToLower(string(match[1]))] = true
			}
		}
		for _, match := range call.FindAllSubmatch(text, -1) {
			used[strings.ToLower(string(match[1]))] = true
		}
	}
	for _, command := range doctor.Commands() {
		if !used[command] {
			t.Errorf("the doctor wants the right +%s, and it is not used", command)
		}
	}
	if known := doctor.Commands(); len(known) != len(used) {
		t.Errorf("the doctor looks at %d rights, and %d are used", len(known), len(used))
	}
	line, err := os.ReadFile(aclFile)
	if err != nil {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(string(line)) {
		command, ok := strings.CutPrefix(word, "+")
		if !ok {
			continue
		}
		if !used[command] {
			t.Errorf("+%s is not used", command)
		}
		delete(used, command)
	}
	for command := range used {
		t.Errorf("+%s is missing", command)
	}
}

// withUser starts a server that has the user of users.acl, and returns a URL
// with its password.
func withUser(t *testing.T, args ...string) (server *redistest.Server, url string) {
	t.Helper()
	const password = "for the test"
	line, err := os.ReadFile(aclFile)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(path, line, 0o600); err != nil {
		t.Fatal(err)
	}
	server = redistest.Start(t, append([]string{"--aclfile", path}, args...)...)
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", aclUser, ">"+password).Err(); err != nil {
		t.Fatal(err)
	}
	return server, "redis://" + aclUser + ":" + strings.ReplaceAll(password, " ", "%20") + "@" + server.Addr()
}

// TestACLUser goes the whole way as the user: in, out, settled, refused,
// changed, stopped, purged, looked at. Redis' log of what it forbade stays empty.
func TestACLUser(t *testing.T) {
	t.Parallel()
	const rate, jobs = 200, 200
	server, url := withUser(t, "--appendonly", "yes")
	s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 2, RedisURL: url})
	s.Post("acl", jobs)
	s.Post("acl", 1) // a duplicate
	s.AwaitDelivered(20 * time.Second)
	harness.Await(t, 10*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })

	bucket := "/v1/buckets/" + harness.BucketName + "/jobs"
	for _, step := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPost, bucket, `{"id":"later","payload":1,"delay":"1h"}`, http.StatusAccepted},
		{http.MethodGet, bucket + "/later", "", http.StatusOK},
		{http.MethodDelete, bucket + "/later", "", http.StatusOK},
	} {
		if status, answer := s.Request(step.method, step.path, "application/json", strings.NewReader(step.body)); status != step.want {
			t.Errorf("%s %s: %d %s", step.method, step.path, status, answer)
		}
	}
	for _, args := range []string{
		"fleet", "audit", "bucket history " + harness.BucketName, "bucket why " + harness.BucketName, "bucket list --json", "bucket show " + harness.BucketName, "bucket pause " + harness.BucketName, "bucket set " + harness.BucketName + " --rate 100/s", "bucket reset " + harness.BucketName,
		"bucket purge " + harness.BucketName + " --yes", "bucket resume " + harness.BucketName, "dead list " + harness.BucketName, "job show " + harness.BucketName + " acl-1", "doctor",
	} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(harness.Programs, "dispatcher"), append(strings.Fields(args), "--config", s.Config)...).CombinedOutput()
		if err != nil || strings.Contains(string(out), "[fail]") {
			t.Errorf("dispatcher %s: %v\n%s", args, err, out)
		}
	}
	limits(t, url)
	forbidden := denied(t, server.Client())
	t.Logf("forbidden were %v", forbidden)
	for _, command := range forbidden {
		if command != "config|get" && command != "dbsize" { // they would show passwords, and keys of others: the doctor and a metric can do without
			t.Errorf("Redis forbade %s", command)
		}
	}
}

// TestACLWithoutFunctions: a server that does not let the user load functions is given scripts, and nothing is lost.
func TestACLWithoutFunctions(t *testing.T) {
	t.Parallel()
	const rate, jobs = 200, 200
	server, url := withUser(t)
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", aclUser, "-fcall", "-function").Err(); err != nil {
		t.Fatal(err)
	}
	s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 2, RedisURL: url})
	s.Post("acl", jobs)
	s.AwaitDelivered(20 * time.Second)
	harness.Await(t, 10*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })
	for _, command := range denied(t, server.Client()) {
		if command != "function|list" && command != "function|load" && command != "config|get" {
			t.Errorf("Redis forbade %s", command)
		}
	}
}

// TestACLWithoutPublish: jobs are admitted and delivered without the wake-up, and the start names the right that is missing.
func TestACLWithoutPublish(t *testing.T) {
	t.Parallel()
	const rate, jobs = 200, 100
	server, url := withUser(t)
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", aclUser, "-publish").Err(); err != nil {
		t.Fatal(err)
	}
	s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 1, RedisURL: url})
	s.Post("acl", jobs)
	s.AwaitDelivered(20 * time.Second)
	harness.Await(t, 10*time.Second, "everything is settled", func() bool { return s.Unfinished() == 0 })
	for _, p := range []*harness.Process{s.Producer, s.Dispatchers[0]} {
		harness.Await(t, 10*time.Second, "the log names the right that is missing", func() bool { // at the start, or once Redis answers
			log := p.Output.String()
			return strings.Contains(log, "may not use publish on keys") && strings.Contains(log, "+publish")
		})
	}
}

// limits uses each algorithm, and changes a limit.
func limits(t *testing.T, redisURL string) {
	t.Helper()
	tables, names := "", []string{"token_bucket", "sliding_window_log", "sliding_window_counter", "fixed_window"}
	for i, algorithm := range names {
		tables += harness.LimitTable(fmt.Sprint("l", i), algorithm, "2/m", `on_store_failure = "local"`)
	}
	tables += "[[buckets]]\nname = \"limited\"\nrate = \"1000/s\"\nlimits = [\"l0\", \"l1\", \"l2\", \"l3\"]\n[buckets.webhook]\nurl = \"http://127.0.0.1:9/\"\n"
	api := harness.Producers(t, redisURL, 1, tables)[0]
	do := func(method, path, body string) int {
		request, err := http.NewRequestWithContext(t.Context(), method, api+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	for i, algorithm := range names {
		path := fmt.Sprintf("/v1/limits/l%d/check", i)
		got := []int{do(http.MethodPost, path, `{}`), do(http.MethodPost, path, `{}`), do(http.MethodPost, path, `{}`)}
		if want := []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", algorithm, got, want)
		}
	}
	jobs := "/v1/buckets/limited/jobs"
	got := []int{do(http.MethodPost, jobs, `{"payload":1}`), do(http.MethodPost, jobs, `{"payload":1}`), do(http.MethodPost, jobs, `{"payload":1}`)}
	if want := []int{http.StatusAccepted, http.StatusAccepted, http.StatusTooManyRequests}; !slices.Equal(got, want) {
		t.Errorf("enqueue: %v, want %v", got, want)
	}
	if status := do(http.MethodPatch, "/v1/limits/l0", `{"limit":"5/m"}`); status != http.StatusOK {
		t.Errorf("change a limit: %d", status)
	}
	if status := do(http.MethodGet, "/metrics", ""); status != http.StatusOK { // reads the buckets and the sample of keys
		t.Errorf("metrics: %d", status)
	}
}

// denied lists what Redis forbade the user.
func denied(t *testing.T, client *redis.Client) []string {
	t.Helper()
	log, err := client.ACLLog(t.Context(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, entry := range log {
		list = append(list, entry.Object)
	}
	return list
}

// TestACLForbids: keys, channels and commands that are not Tundish's.
func TestACLForbids(t *testing.T) {
	t.Parallel()
	_, url := withUser(t)
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	if err := client.HGetAll(t.Context(), "tundish:buckets").Err(); err != nil {
		t.Errorf("what is allowed: %v", err)
	}
	for _, command := range [][]any{
		{"GET", "others:key"}, {"RANDOMKEY"}, {"SCAN", "0"}, {"PUBLISH", "others", "x"}, {"KEYS", "tundish:*"}, {"FLUSHALL"}, {"FLUSHDB"}, {"CONFIG", "GET", "requirepass"},
		{"CONFIG", "SET", "appendonly", "no"}, {"ACL", "LIST"}, {"SHUTDOWN"}, {"MONITOR"}, {"REPLICAOF", "NO", "ONE"},
		{"SCRIPT", "FLUSH"}, {"MIGRATE", "127.0.0.1", "1", "tundish:x", "0", "10"}, {"CLUSTER", "RESET"}, {"MODULE", "LIST"}, {"SAVE"},
		{"EVAL", "return redis.call('GET', 'others:key')", 0}, {"EVAL", "return redis.call('FLUSHALL')", 0}, {"EVAL", "return redis.call('PUBLISH', 'others', 'x')", 0},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err := client.Do(ctx, command...).Err()
		cancel()
		if err == nil || !redis.HasErrorPrefix(err, "NOPERM") && !strings.Contains(err.Error(), "The user executing the script can't") {
			t.Errorf("%v: %v, want that it is forbidden", command, err)
		}
	}
}
