package httpapi_test

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/fleet"
	"github.com/tundish-io/tundish/shaper/operator"
)

// keyOf makes a key whose secret is its name.
func keyOf(name string, buckets []string, roles ...apikey.Role) apikey.Key {
	return apikey.Key{Name: name, SHA256: [][32]byte{sha256.Sum256([]byte(name))}, Roles: roles, Buckets: buckets}
}

func keys() []apikey.Key {
	all := []string{apikey.AllBuckets}
	list := []apikey.Key{
		keyOf("enqueue", []string{"small", "roomy"}, apikey.RoleEnqueue), keyOf("elsewhere", []string{"small"}, apikey.RoleEnqueue),
		keyOf("check", nil, apikey.RoleCheck), keyOf("read", all, apikey.RoleRead), keyOf("read-some", []string{"small"}, apikey.RoleRead),
		keyOf("operate", all, apikey.RoleOperate), keyOf("admin", all, apikey.RoleAdmin), keyOf("admin-some", []string{"roomy"}, apikey.RoleAdmin), keyOf("nothing", all),
	}
	list[0].Tier = "pro"
	return list
}

// store is a fake that lets every job in.
func store(t *testing.T) *fake {
	t.Helper()
	f := &fake{bucket: buckets(t)[0], info: shaper.JobInfo{Owner: shaper.Owner{Mark: shaper.CallerMark("enqueue")}}, cancelled: shaper.StateCancelled, headers: []string{"X-Tenant"}}
	f.enqueue = func(context.Context) ([]shaper.Receipt, error) { return make([]shaper.Receipt, len(f.got)), nil }
	return f
}

// request is one that httptest's recorder answers; headers are pairs.
func request(handler http.Handler, remote, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = remote
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Content-Type" {
			r.Header.Del(headers[i])
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

const far = "192.0.2.1:9"

func TestRoles(t *testing.T) {
	t.Parallel()
	producer := httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: store(t), CheckJob: checkJob, Keys: keys(), Limits: &fakeLimits{}, BucketLimits: &fakeOverrides{},
	})
	ops := httpapi.NewOps(httpapi.OpsConfig{Buckets: &fakeBuckets{op: pooledOperator(t, redistest.Start(t), &shaper.Pool{Name: "vendor", Rate: rateOf(t, "9/m")})},
		Keys: keys(), Sink: true})
	both := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t), CheckJob: checkJob, Keys: keys(), Limits: &fakeLimits{},
		Operator: &fakeBuckets{op: pooledOperator(t, redistest.Start(t), nil)}})
	for _, test := range []struct {
		server       http.Handler
		method, path string
		body         string
		may          []string // keys
	}{
		{both, "POST", jobs, job(""), []string{"enqueue", "admin", "admin-some"}},
		{both, "GET", jobs + "/a", "", []string{"enqueue", "read", "admin", "admin-some"}},
		{both, "DELETE", jobs + "/a", "", []string{"enqueue", "admin", "admin-some"}},
		{both, "GET", "/v1/buckets/roomy", "", []string{"read", "admin", "admin-some"}},
		{both, "POST", "/v1/buckets/roomy/pause", "", []string{"operate", "admin", "admin-some"}},
		{both, "POST", "/v1/buckets/roomy/purge", `{"dry_run":true}`, []string{"admin", "admin-some"}},
		{both, "GET", "/v1/buckets/roomy/dead", "", []string{"read", "admin", "admin-some"}},
		{both, "POST", "/v1/buckets/roomy/dead/redrive", `{"dry_run":true}`, []string{"operate", "admin", "admin-some"}},
		{both, "DELETE", "/v1/buckets/roomy/dead", `{"all":true,"confirm":"roomy"}`, []string{"admin", "admin-some"}},
		{producer, "POST", jobs, job(""), []string{"enqueue", "admin", "admin-some"}},
		{producer, "POST", jobs + "/batch", "[" + job("") + "]", []string{"enqueue", "admin", "admin-some"}},
		{producer, "GET", jobs + "/a", "", []string{"enqueue", "read", "admin", "admin-some"}},
		{producer, "DELETE", jobs + "/a", "", []string{"enqueue", "admin", "admin-some"}},
		{producer, "POST", strings.Replace(jobs, "roomy", "first-roomy", 1), job(""), []string{"enqueue", "admin", "admin-some"}}, // its first name
		{producer, "GET", "/v1/limits/a/check", "", []string{"check", "admin", "admin-some"}},
		{producer, "PUT", "/v1/limits/a/check//any/../where", "", []string{"check", "admin", "admin-some"}},
		{producer, "GET", "/v1/limits", "", []string{"read", "read-some", "admin", "admin-some"}},
		{producer, "GET", "/v1/limits/a", "", []string{"read", "read-some", "admin", "admin-some"}},
		{producer, "PATCH", "/v1/limits/a", `{"burst":1}`, []string{"admin"}},
		{producer, "DELETE", "/v1/limits/a/override", "", []string{"admin"}},
		{producer, "GET", "/metrics", "", []string{"read", "read-some", "admin", "admin-some"}},
		{ops, "GET", "/v1/buckets", "", []string{"read", "read-some", "admin", "admin-some"}},
		{ops, "GET", "/v1/buckets/roomy", "", []string{"read", "admin", "admin-some"}},
		{ops, "GET", "/v1/buckets/first-roomy", "", []string{"read", "admin", "admin-some"}},
		{ops, "PATCH", "/v1/buckets/roomy", `{"rate":"2/h"}`, []string{"admin", "admin-some"}},
		{ops, "DELETE", "/v1/buckets/roomy/overrides", "", []string{"admin", "admin-some"}},
		{ops, "DELETE", "/v1/buckets/roomy/overrides/rate", "", []string{"admin", "admin-some"}},
		{ops, "POST", "/v1/buckets/roomy/pause", "", []string{"operate", "admin", "admin-some"}},
		{ops, "POST", "/v1/buckets/roomy/resume", "", []string{"operate", "admin", "admin-some"}},
		{ops, "POST", "/v1/buckets/roomy/purge", `{"confirm":"roomy"}`, []string{"admin", "admin-some"}},
		{ops, "POST", "/v1/buckets/small/purge", `{"confirm":"small"}`, []string{"admin"}},
		{ops, "GET", "/v1/pools", "", []string{"read", "read-some", "admin", "admin-some"}},
		{ops, "GET", "/v1/pools/vendor", "", []string{"read", "read-some", "admin", "admin-some"}},
		{ops, "PATCH", "/v1/pools/vendor", `{"rate":"2/h"}`, []string{"admin"}},
		{ops, "DELETE", "/v1/pools/vendor/overrides", "", []string{"admin"}},
		{ops, "DELETE", "/v1/pools/vendor/overrides/rate", "", []string{"admin"}},
		{ops, "GET", "/v1/schedules", "", []string{"read", "read-some", "admin", "admin-some"}},
		{ops, "PUT", "/v1/schedules/s", `{"cron":"@daily","bucket":"roomy"}`, []string{"admin", "admin-some"}},
		{ops, "PUT", "/v1/schedules/t", `{"cron":"@daily","bucket":"small","dry_run":true}`, []string{"admin"}},
		{ops, "POST", "/v1/schedules/s/pause", "", []string{"operate", "admin", "admin-some"}},
		{ops, "GET", "/metrics", "", []string{"read", "read-some", "admin", "admin-some"}},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			for _, key := range keys() {
				w := request(test.server, far, test.method, test.path, test.body, "Authorization", "bearer  "+key.Name)
				switch may := slices.Contains(test.may, key.Name); {
				case may && w.Code/100 != 2:
					t.Errorf("%s: %d: %s", key.Name, w.Code, w.Body)
				case !may && (w.Code != 403 || !strings.Contains(w.Body.String(), " lacks ")):
					t.Errorf("%s may: %d: %s", key.Name, w.Code, w.Body)
				}
			}
			for _, headers := range [][]string{
				nil, {"Authorization", "Bearer nobody"}, {"Authorization", "Bearer "}, {"Authorization", "Bearer"}, {"Authorization", "Basic admin"},
				{"Authorization", "admin"}, {"Authorization", "Bearer admin x"}, {"Authorization", "Bearer admin", "Authorization", "Bearer admin"},
			} {
				w := request(test.server, "127.0.0.1:9", test.method, test.path, test.body, headers...)
				if w.Code != 401 || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") || !strings.Contains(w.Body.String(), `"unauthorized"`) {
					t.Errorf("%v: %d %v: %s", headers, w.Code, w.Header(), w.Body)
				}
			}
		})
	}
}

func TestKeysOpenTheServer(t *testing.T) {
	t.Parallel()
	producer := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t), CheckJob: checkJob, Keys: keys(), Limits: &fakeLimits{}})
	for _, path := range []string{"/livez", "/readyz", "/openapi.yaml"} {
		if w := request(producer, far, "GET", path, "", "X-Forwarded-For", "192.0.2.7"); w.Code != 200 {
			t.Errorf("%s: %d: %s", path, w.Code, w.Body)
		}
	}
	enqueue := []string{"Authorization", "Bearer enqueue", "Via", "1.1 proxy"}
	if w := request(producer, far, "POST", jobs, job(""), enqueue...); w.Code != 202 {
		t.Errorf("from afar: %d: %s", w.Code, w.Body)
	}
	if w := request(producer, far, "POST", jobs, job(""), append(enqueue, "Origin", "https://evil.example")...); w.Code != 403 {
		t.Errorf("of another origin: %d: %s", w.Code, w.Body)
	}
	// A gateway sends the headers of its client.
	for _, path := range []string{"/v1/limits/a/check", "/v1/limits/a/check/x"} {
		w := request(producer, far, "POST", path, "", "Authorization", "Bearer check", "Origin", "https://any.example", "Sec-Fetch-Site", "cross-site")
		must.Equal(t, w.Code, 200, "%s:: %s", path, w.Body)
	}
	ops := httpapi.NewOps(httpapi.OpsConfig{Buckets: &fakeBuckets{op: pooledOperator(t, redistest.Start(t), nil)}, Keys: keys(), Sink: true})
	for remote, status := range map[string]int{far: 403, "127.0.0.1:9": 200} {
		if w := request(ops, remote, "POST", "http://localhost"+httpapi.SinkPath, "{}"); w.Code != status {
			t.Errorf("sink from %s: %d: %s", remote, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/v1/buckets", "/v1/pools", "/v1/pools/vendor"} {
		if w := request(ops, far, "GET", path, "", "Authorization", "Bearer read-some"); strings.Contains(w.Body.String(), "roomy") ||
			!strings.Contains(w.Body.String(), "small") {
			t.Errorf("%s: read-some sees %s", path, w.Body)
		}
	}
}

func TestNoSecretIsLogged(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	producer := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t), Keys: keys(), Limits: &fakeLimits{}, Logger: logTo(log)})
	for _, path := range []string{jobs, "/v1/limits/a/check?key=canary", "/nothing"} {
		w := request(producer, far, "GET", path, "", "Authorization", "Bearer canary")
		if strings.Contains(w.Body.String()+log.String(), "canary") {
			t.Errorf("%s: %s\n%s", path, w.Body, log)
		}
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	const behind = "10.0.0.1:9"
	for name, test := range map[string]struct {
		keys    []apikey.Key
		header  string // where the proxy leaves the address
		remote  string
		headers []string
		want    admission.Identity
	}{
		"a key": {
			keys(), "", far, []string{"Authorization", "Bearer enqueue"},
			admission.Identity{Caller: "key:enqueue", IP: "192.0.2.1", Tier: "pro", Headers: map[string]string{}},
		},
		"a key behind a proxy": {
			keys(), "", behind, []string{"Authorization", "Bearer enqueue", "X-Forwarded-For", "2001:db8:1:2::3"},
			admission.Identity{Caller: "key:enqueue", IP: "2001:db8:1::/48", Tier: "pro", Headers: map[string]string{}},
		},
		"not a trusted one": {
			keys(), "", far, []string{"Authorization", "Bearer enqueue", "X-Forwarded-For", "192.0.2.7"},
			admission.Identity{Caller: "key:enqueue", IP: "192.0.2.1", Tier: "pro", Headers: map[string]string{}},
		},
		"Forwarded": {
			keys(), "forwarded", behind, []string{"Authorization", "Bearer enqueue", "X-Forwarded-For", "192.0.2.7", "Forwarded", "for=192.0.2.8"},
			admission.Identity{Caller: "key:enqueue", IP: "192.0.2.8", Tier: "pro", Headers: map[string]string{}},
		},
		"no keys": {
			nil, "", "127.0.0.1:9", []string{"X-Tenant", "acme", "X-Other", "x"},
			admission.Identity{Caller: "addr:127.0.0.1", IP: "127.0.0.1", Headers: map[string]string{"X-Tenant": "acme"}},
		},
		"no keys, a proxy of this machine": {
			nil, "", "[::1]:9", []string{"X-Forwarded-For", "192.0.2.7", "X-Tenant", "a", "X-Tenant", "b"},
			admission.Identity{Caller: "addr:192.0.2.7", IP: "192.0.2.7", Headers: map[string]string{"X-Tenant": "a, b"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := store(t)
			producer := httpapi.NewProducer(httpapi.ProducerConfig{
				Jobs: f, CheckJob: checkJob, Keys: test.keys, ForwardedHeader: test.header, IPv6Prefix: 48,
				TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")},
			})
			for _, path := range []string{jobs, jobs + "/batch"} {
				body := job("")
				if path != jobs {
					body = "[" + body + "," + body + "]"
				}
				if w := request(producer, test.remote, "POST", "http://localhost"+path, body, test.headers...); w.Code/100 != 2 {
					t.Fatalf("%d: %s", w.Code, w.Body)
				}
				for _, sent := range f.got {
					must.Equal(t, cmp.Diff(test.want, sent.Identity), "", "%s (-want +got):", path)
				}
			}
		})
	}
}

func TestTrustedProxyNeedsNoKey(t *testing.T) {
	t.Parallel()
	producer := httpapi.NewProducer(httpapi.ProducerConfig{
		Jobs: store(t), CheckJob: checkJob, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("192.0.2.1/32")},
	})
	for _, test := range []struct {
		remote, host string
		status       int
	}{
		{"127.0.0.1:9", "localhost", 202},
		{"127.0.0.2:9", "localhost", 403},    // another proxy of this machine
		{"127.0.0.1:9", "evil.example", 403}, // a web page, by way of its own name
		{far, "localhost", 403},              // trusted, but not of this machine
	} {
		w := request(producer, test.remote, "POST", "http://"+test.host+jobs, job(""), "X-Forwarded-For", "192.0.2.7")
		must.Equal(t, w.Code, test.status, "%v:: %s", test, w.Body)
	}
}

// Without keys a producer lets only programs of its machine operate, as a dispatcher does; unless it is configured so, it lets nobody.
func TestProducerOperatesOnlyIfAskedTo(t *testing.T) {
	t.Parallel()
	with := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t), Operator: &fakeBuckets{op: pooledOperator(t, redistest.Start(t), nil)}})
	without := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: store(t)})
	for remote, status := range map[string]int{far: 403, "127.0.0.1:9": 200} {
		for _, path := range []string{"/v1/buckets/roomy/pause", "/v1/buckets/roomy/resume"} {
			if w := request(with, remote, "POST", "http://localhost"+path, ""); w.Code != status {
				t.Errorf("%s from %s: %d: %s", path, remote, w.Code, w.Body)
			}
		}
	}
	if w := request(without, "127.0.0.1:9", "POST", "http://localhost/v1/buckets/roomy/pause", ""); w.Code != 404 || !strings.Contains(w.Body.String(), "unknown-route") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// A job's headers are for those who may look at everything, and credentials are for nobody.
func TestHeadersOfAJob(t *testing.T) {
	t.Parallel()
	f := store(t)
	f.info = shaper.JobInfo{Owner: shaper.Owner{Mark: shaper.CallerMark("enqueue")}, ID: "a", Bucket: "roomy", State: shaper.StateQueued, Enqueued: time.UnixMilli(1783228800000),
		Headers: map[string][]string{"X-Tenant": {"7"}, "X-Api-Key": {"canary"}}}
	producer := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, Keys: keys()})
	for key, want := range map[string]string{"enqueue": "", "read": `"headers":{"X-Api-Key":["***"],"X-Tenant":["7"]}`, "admin": `"headers":{"X-Api-Key":["***"],"X-Tenant":["7"]}`} {
		w := request(producer, far, "GET", jobs+"/a", "", "Authorization", "Bearer "+key)
		text := w.Body.String()
		if strings.Contains(text, "canary") || !strings.Contains(text, want) || want == "" && strings.Contains(text, "headers") {
			t.Errorf("%s sees %s", key, text)
		}
	}
}

func TestSetKeys(t *testing.T) {
	t.Parallel()
	f := store(t)
	producer := httpapi.NewProducer(httpapi.ProducerConfig{Jobs: f, CheckJob: checkJob})
	status := func(remote string) int {
		return request(producer, remote, "GET", "http://localhost"+jobs+"/a", "", "Authorization", "Bearer read").Code
	}
	const near = "127.0.0.1:9"
	for _, step := range []struct {
		keys      []apikey.Key
		near, far int
	}{
		{nil, 200, 403}, {keys(), 200, 200}, {[]apikey.Key{keyOf("other", nil, apikey.RoleRead)}, 401, 401}, {nil, 200, 403},
	} {
		producer.SetKeys(step.keys)
		if gotNear, gotFar := status(near), status(far); gotNear != step.near || gotFar != step.far {
			t.Errorf("with %d keys: %d and %d, want %d and %d", len(step.keys), gotNear, gotFar, step.near, step.far)
		}
	}
	// At any moment in between, who is far and has no key is let in by nobody.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			producer.SetKeys(keys()[:1])
			producer.SetKeys(nil)
		}
	}()
	for changing := true; changing; {
		select {
		case <-done:
			changing = false
		default:
		}
		if got := status(far); got != 401 && got != 403 {
			t.Fatalf("a stranger got %d", got)
		}
	}
}

func TestNewSecret(t *testing.T) {
	t.Parallel()
	secret, sum := apikey.NewSecret()
	other, _ := apikey.NewSecret()
	if len(secret) != 47 || !strings.HasPrefix(secret, "tdk_") || secret == other || sum != sha256.Sum256([]byte(secret)) {
		t.Errorf("%q, %x", secret, sum)
	}
}

// fakeBuckets are two, in a pool.
type fakeBuckets struct{ op *operator.Operator }

func (*fakeBuckets) Pools() []string                              { return []string{"vendor"} }
func (*fakeBuckets) KnownPools(context.Context) ([]string, error) { return nil, nil }
func (*fakeBuckets) PoolDetails(context.Context, ...string) ([]operator.PoolDetails, error) {
	return []operator.PoolDetails{{Name: "vendor", Buckets: []operator.PoolBucket{{Name: "roomy"}, {Name: "small"}}}}, nil
}

func (f *fakeBuckets) Schedule(name string) operator.Schedule { return f.op.Schedule(name) }
func (*fakeBuckets) Schedules(context.Context) ([]shaper.ScheduleInfo, error) {
	return []shaper.ScheduleInfo{{Schedule: shaper.Schedule{Name: "nightly"}, Bucket: "roomy"}, {Schedule: shaper.Schedule{Name: "daily"}, Bucket: "small"}}, nil
}

func (f *fakeBuckets) As(author string) *operator.Operator          { return f.op.As(author) }
func (f *fakeBuckets) Bucket(name string) operator.Bucket           { return f.op.Bucket(name) }
func (f *fakeBuckets) CurrentName(bucket string) string             { return strings.TrimPrefix(bucket, "first-") }
func (*fakeBuckets) Probe(context.Context) error                    { return nil }
func (*fakeBuckets) Buckets() []string                              { return []string{"roomy", "small"} }
func (*fakeBuckets) KnownBuckets(context.Context) ([]string, error) { return nil, nil }
func (*fakeBuckets) Authorships(context.Context, bool, ...string) map[string]shaper.Authorship {
	return nil
}

func (*fakeBuckets) BucketInfos(_ context.Context, names ...string) ([]operator.BucketInfo, error) {
	infos := make([]operator.BucketInfo, len(names))
	for i, name := range names {
		infos[i].Name = name
	}
	return infos, nil
}

func (*fakeBuckets) Verdicts(_ context.Context, infos []operator.BucketInfo) ([]operator.Verdict, error) {
	verdicts := make([]operator.Verdict, len(infos))
	for i := range verdicts {
		verdicts[i].Code = operator.WhyEmpty
	}
	return verdicts, nil
}

func (f *fakeBuckets) HaveJob(ctx context.Context, id string, buckets ...string) ([]string, error) {
	return f.op.HaveJob(ctx, id, buckets...)
}

func (f *fakeBuckets) Fleet() *fleet.View { return fleet.NewView(nil, 0) }
func (f *fakeBuckets) Audit() *audit.Log  { return nil }
