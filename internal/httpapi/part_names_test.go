package httpapi_test

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/nginxtest"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/producer"
)

// partNames are names of flows and groups that a path, a proxy or a decoder could change, by their kind.
var partNames = []struct{ kind, name string }{
	{"plain", "acme"},
	{"empty", ""},
	{"dot", "."},
	{"two dots", ".."},
	{"three dots", "..."},
	{"slash", "a/b"},
	{"only slashes", "//"},
	{"climbing", "../../x"},
	{"percent", "100%"},
	{"encoded slash", "a%2Fb"},
	{"encoded dots", "%2e%2e"},
	{"question mark", "a?b=c"},
	{"number sign", "a#b"},
	{"space", "a b"},
	{"only a space", " "},
	{"plus", "a+b"},
	{"another parameter", "a&flow=b&group=c"},
	{"semicolon", "a;b"},
	{"backslash", `..\b`},
	{"quotes", `"'`},
	{"tab", "a\tb"},
	{"accent", "é"},
	{"combined accent", "e\u0301"},
	{"other scripts", "日本語"},
	{"operation", "pause"},
	{"URL", "https://example.com:8443/hook?x=1#y"},
}

// way is a way of requests to a server.
type way struct {
	name, base string
	client     *http.Client
}

// waysTo returns the ways to a server: direct, through an nginx that passes paths on unchanged, and through one that decodes and normalizes them because it
// replaces a prefix.
func waysTo(t *testing.T, s *server) []way {
	t.Helper()
	files := redistest.NewCertificates(t)
	proxy := nginxtest.Start(t, files, fmt.Sprintf(`
		location / { proxy_pass %[1]s; }
		location /tundish/ { proxy_pass %[1]s/; }`, s.http.URL))
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(must.Get(os.ReadFile(files.CA))(t)) {
		t.Fatal("the CA has no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return []way{
		{"direct", s.http.URL, s.http.Client()},
		{"nginx", proxy.URL, &http.Client{Transport: transport}},
		{"nginx below a prefix", proxy.URL + "/tundish", &http.Client{Transport: transport}},
	}
}

// do sends a request, with a body of JSON if it has one.
func (w way) do(t *testing.T, method, target, body string) *answer {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, w.base+target, strings.NewReader(body)))(t)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := w.client.Do(r)
	must.OK(t, err)
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(t)
	a := &answer{t: t, status: response.StatusCode, header: response.Header, text: string(text)}
	_ = json.Unmarshal(text, &a.json)
	return a
}

// percentEncoded encodes a name as encodeURIComponent of JavaScript does.
func percentEncoded(name string) string { return strings.ReplaceAll(url.QueryEscape(name), "+", "%20") }

// A flow or a group of any name is shown, changed, paused, purged and removed at its one address, also behind a proxy. No job has the empty name, but
// settings may.
func TestFlowsAndGroupsOfAnyName(t *testing.T) {
	t.Parallel()
	all := append(grouped(t, map[string]string{"grouped": "job"}), buckets(t)[0])
	flow := shaper.DefaultFlowSettings()
	flow.Key = shaper.FlowKeyJob
	all[1].Name, all[1].Flow = "flowing", &flow
	conn := connect(t, redistest.Start(t).URL())
	jobs := must.Get(producer.New(producer.Config{Redis: conn, Buckets: all, Timeout: patience}))(t)
	ops := serve(t, httpapi.NewOps(httpapi.OpsConfig{Buckets: newOperator(t, conn, nil, all), Logger: logTo(t.Output())}))
	for _, way := range waysTo(t, ops) {
		for i, of := range partNames {
			t.Run(way.name+"/"+of.kind, func(t *testing.T) {
				other := cmp.Or(partNames[(i+5)%len(partNames)].name, "acme")
				for _, job := range []shaper.Job{{Bucket: "flowing", Flow: of.name}, {Bucket: "grouped", Group: other, Flow: of.name}, {Bucket: "grouped", Group: of.name, Flow: other}} {
					if job.Payload = []byte("1"); job.Flow == "" || job.Bucket == "grouped" && job.Group == "" {
						continue
					}
					if receipts, err := jobs.Enqueue(t.Context(), job); err != nil || receipts[0].Refusal != nil {
						t.Fatal(receipts, err)
					}
				}
				name := percentEncoded(of.name)
				way.operate(t, "/v1/buckets/flowing/flow", "?flow="+name, of.name, map[string]any{"flow": of.name})
				way.operate(t, "/v1/buckets/grouped/flow", "?flow="+name+"&group="+percentEncoded(other), of.name, map[string]any{"flow": of.name, "group": other})
				way.operate(t, "/v1/buckets/grouped/group", "?group="+name, of.name, map[string]any{"group": of.name})
			})
		}
	}
	for _, bucket := range []string{"flowing", "grouped"} {
		ops.do("GET", "/v1/buckets/"+bucket, "").want(200, "").lacks("pause")
	}
}

// operate shows, changes, pauses, purges and removes a flow or a group in which one job waits, or none if its name is empty. Each response has the
// members that name it.
func (w way) operate(t *testing.T, path, query, name string, names map[string]any) {
	t.Helper()
	waiting := 1.0
	if name == "" {
		waiting = 0
	}
	named := func(method, operation, more, body string) *answer {
		t.Helper()
		a := w.do(t, method, path+operation+query+more, body).want(200, "")
		for member, want := range names {
			a.has(member, want)
		}
		return a
	}
	confirm := string(must.Get(json.Marshal(map[string]string{"confirm": name}))(t))
	named("GET", "", "", "").has("waiting", waiting)
	a := named("PATCH", "", "&create=true", `{"weight":3}`)
	must.Equal(t, fmt.Sprint(a.json["settings"]), "map[weight:3]", "settings")
	named("PUT", "", "", `{"burst":2}`)
	if a := named("POST", "/pause", "", ""); a.json["pause"] == nil {
		t.Errorf("it is not paused: %s", a.text)
	}
	named("POST", "/resume", "", "").lacks("pause")
	named("POST", "/purge", "", confirm).has("purged", waiting)
	if strings.HasSuffix(path, "/flow") {
		a := named("DELETE", "/all", "&confirm="+percentEncoded(name), "")
		must.Equal(t, fmt.Sprint(a.json["own"]), "[settings]", "what was removed")
	} else {
		named("DELETE", "", "", "").has("changed", true)
	}
	named("GET", "", "", "").has("unknown", true)
}

// An address of before 0.1.0 is a problem that names the address to use.
func TestRemovedAddresses(t *testing.T) {
	t.Parallel()
	ops := groupStation(t)
	const b = "/v1/buckets/grouped"
	for _, test := range []struct{ method, before, now string }{
		{"GET", "/flows/acme", "/flow?flow=acme"},
		{"PATCH", "/flows/acme?create=true", "/flow?create=true&flow=acme"},
		{"GET", "/flows/acme?flow=c", "/flow?flow=acme"},
		{"GET", "/flows/a%20b", "/flow?flow=a+b"},
		{"PUT", "/flows/", "/flow?flow="},
		{"POST", "/flows//pause", "/flow/pause?flow="},
		{"POST", "/flows/../pause", "/flow/pause?flow=.."},
		{"POST", "/flows/%2E%2E/pause", "/flow/pause?flow=.."},
		{"GET", "/flows/pause", "/flow?flow=pause"},
		{"DELETE", "/flows/a%2Fb/all?confirm=a%2Fb", "/flow/all?confirm=a%2Fb&flow=a%2Fb"},
		{"POST", "/flows/a/b/purge", "/flow/purge?flow=a%2Fb"},
		{"POST", "/groups/g%25/flows/%C3%A9/release", "/flow/release?flow=%C3%A9&group=g%25"},
		{"POST", "/groups//flows/x/enable", "/flow/enable?flow=x&group="},
		{"GET", "/groups/a%20b", "/group?group=a+b"},
		{"POST", "/groups/a%20b/resume", "/group/resume?group=a+b"},
		{"GET", "/flow-settings?flow=1&group=c", "/flow?flow=1&group=c"},
		{"PUT", "/group-settings?group=c", "/group?group=c"},
	} {
		a := ops.do(test.method, b+test.before, "").want(404, "unknown-route")
		a.has("detail", "this address was removed, because the query names flows and groups: use "+test.method+" "+b+test.now)
		if a := ops.do(test.method, b+test.now, ""); a.json["code"] == "unknown-route" || a.json["code"] == "method-not-allowed" {
			t.Errorf("%s %s is no route either: %s", test.method, test.now, a.text)
		}
	}
	ops.do("GET", b, "").want(200, "").lacks("pause")
	ops.do("GET", b+"/flows", "").want(200, "")
	ops.do("GET", b+"/streams/acme", "").want(404, "unknown-route").has("detail", "the paths are listed in /openapi.yaml")
}

// A path that http.ServeMux would clean leads to no other object: it is not redirected.
func TestPathsAreNotCleaned(t *testing.T) {
	t.Parallel()
	ops := flowStation(t)
	for _, path := range []string{"/v1/buckets/flowing/jobs/../pause", "/v1/buckets//flowing/pause", "/v1/buckets/flowing/./pause", "/v1/buckets/flowing/pause/."} {
		a := ops.do("POST", path, "").want(404, "unknown-route")
		a.has("detail", `the path has an empty part, "." or "..": percent-encode each name in it`)
	}
	ops.do("GET", "/v1/buckets/flowing", "").want(200, "").lacks("pause")
}

// Names in paths, and the key of a limit, reach their handlers unchanged: ids may have slashes. A proxy has to pass the path on unchanged.
func TestNamesInPathsReachTheHandlers(t *testing.T) {
	t.Parallel()
	limits := &fakeLimits{}
	api := serve(t, httpapi.NewProducer(httpapi.ProducerConfig{Jobs: newClient(t, connect(t, redistest.Start(t).URL()), nil), CheckJob: checkJob, Limits: limits, Logger: logTo(t.Output())}))
	for i, way := range waysTo(t, api) {
		for _, id := range visible[:len(visible)-1] {
			id = fmt.Sprint(i, id)
			quoted := string(must.Get(json.Marshal(id))(t))
			a := way.do(t, "POST", jobs, job(`"id":`+quoted)).want(202, "")
			if way.name == "nginx below a prefix" && strings.Contains(id, "/") { // as docs/http-api.md says
				way.do(t, "GET", a.header.Get("Location"), "").want(404, "unknown-route")
				continue
			}
			way.do(t, "GET", a.header.Get("Location"), "").want(200, "").has("id", id)
			way.do(t, "DELETE", jobs+"/"+percentEncoded(id), "").want(200, "").has("id", id)
		}
		for _, of := range partNames {
			way.do(t, "GET", "/v1/limits/a/check?key="+percentEncoded(of.name), "").want(200, "")
			must.Equal(t, limits.got.Key, of.name, "%s: the key of the limit", way.name)
		}
	}
	for _, path := range []string{"/v1/buckets/a%2Fb/jobs/x", "/v1/limits/a%2Fb/check"} {
		if a := api.do("GET", path, ""); a.status != 404 || !strings.Contains(a.text, "a/b") {
			t.Errorf("%s: %s", path, a.text)
		}
	}
}
