package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/internal/cli"
	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/internal/stored"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/audit"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// operatorRow is a command with the endpoints that it calls.
type operatorRow struct {
	command   string   // "" of an endpoint without one
	endpoints []string // none of a command without one
	role      string
}

// operatorTable returns a row for each command of the dispatcher, and for each endpoint without one.
func operatorTable(t *testing.T) (rows []operatorRow) {
	t.Helper()
	for _, op := range httpapi.Operations() {
		if !slices.Contains(op.Tags, "operator") {
			continue
		}
		roles := make([]string, len(op.Roles))
		for i, role := range op.Roles {
			roles[i] = string(role)
		}
		endpoint := op.Method + " " + strings.TrimPrefix(op.Path, "/v1")
		if len(op.Commands) == 0 {
			rows = append(rows, operatorRow{endpoints: []string{endpoint}, role: strings.Join(roles, ", ")})
		}
		for _, command := range op.Commands {
			at := slices.IndexFunc(rows, func(row operatorRow) bool { return row.command == command })
			if at < 0 {
				rows = append(rows, operatorRow{command, []string{endpoint}, strings.Join(roles, ", ")})
				continue
			}
			rows[at].endpoints = append(rows[at].endpoints, endpoint)
		}
	}
	for _, cmd := range dispatcherCommands() {
		if cmd.Flag("server") == nil {
			rows = append(rows, operatorRow{command: strings.TrimPrefix(cmd.CommandPath(), "dispatcher ")})
		}
	}
	return rows
}

// dispatcherCommands are the commands of the dispatcher that do something.
func dispatcherCommands() (list []*cobra.Command) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			if !child.Hidden { // a former name
				walk(child)
			}
		}
		if !cmd.HasSubCommands() {
			list = append(list, cmd)
		}
	}
	walk(cli.Commands()[0])
	return list
}

// operatorEndpoints are the operator's endpoints of openapi.yaml with their roles. A test of package httpapi holds that file and
// the routes equal.
var operatorEndpoints = sync.OnceValues(func() (map[string]string, error) {
	text, err := os.ReadFile("../httpapi/openapi.yaml")
	if err != nil {
		return nil, err
	}
	var contract struct {
		Paths map[string]map[string]yaml.Node
	}
	if err := yaml.Unmarshal(text, &contract); err != nil {
		return nil, err
	}
	endpoints := map[string]string{}
	for path, methods := range contract.Paths {
		below, ok := strings.CutPrefix(path, "/v1")
		if !ok {
			continue
		}
		for method, node := range methods {
			var operation struct {
				Tags     []string
				Security []struct{ Key []string }
			}
			if method == "parameters" || method == "description" {
				continue
			}
			if err := node.Decode(&operation); err != nil {
				return nil, err
			}
			if slices.Contains(operation.Tags, "operator") {
				endpoints[strings.ToUpper(method)+" "+below] = strings.Join(operation.Security[0].Key, ", ")
			}
		}
	}
	return endpoints, nil
})

// referenceEndpoints returns the operations of docs/http-reference.md: an item of a list whose path begins with "…" is below the path of its heading.
func referenceEndpoints(page string) map[string]bool {
	found, resource := map[string]bool{}, ""
	for line := range strings.Lines(page) {
		if heading, is := strings.CutPrefix(line, "### `"); is {
			resource, _, _ = strings.Cut(heading, "`")
		} else if item, is := strings.CutPrefix(line, "- `"); is {
			endpoint, _, _ := strings.Cut(item, "`")
			found[strings.Replace(endpoint, "…", resource, 1)] = true
		}
	}
	return found
}

// Each command calls the endpoints that the operations name, and each endpoint is one of openapi.yaml, with its role. docs/cli.md lists each command, and
// docs/http-reference.md each endpoint.
func TestOperatorTable(t *testing.T) {
	t.Parallel()
	page, reference := string(must.Get(os.ReadFile("../../docs/cli.md"))(t)), referenceEndpoints(string(must.Get(os.ReadFile("../../docs/http-reference.md"))(t)))
	endpoints := must.Get(operatorEndpoints())(t)
	var listed, commands, shown, served []string
	for _, row := range operatorTable(t) {
		if row.command != "" {
			listed = append(listed, row.command)
		}
		for _, endpoint := range row.endpoints {
			if endpoints[endpoint] != row.role {
				t.Errorf("%s needs the role %q, and its operation says %q", endpoint, endpoints[endpoint], row.role)
			}
			shown = append(shown, endpoint)
			if method, path, _ := strings.Cut(endpoint, " "); !reference[method+" /v1"+path] {
				t.Errorf("docs/http-reference.md lacks %s", endpoint)
			}
		}
	}
	for _, cmd := range dispatcherCommands() {
		commands = append(commands, strings.TrimPrefix(cmd.CommandPath(), "dispatcher "))
		if !strings.Contains(page, "\n- `"+strings.TrimPrefix(strings.TrimSuffix(cmd.UseLine(), " [flags]"), "dispatcher ")+"`: ") {
			t.Errorf("docs/cli.md lacks %s", cmd.UseLine())
		}
	}
	for endpoint := range endpoints {
		served = append(served, endpoint)
	}
	slices.Sort(listed)
	slices.Sort(commands)
	slices.Sort(served)
	slices.Sort(shown)
	must.Equal(t, cmp.Diff(commands, listed), "", "commands (-there are +that operations name or that have no --server):")
	must.Equal(t, cmp.Diff(served, slices.Compact(shown)), "", "endpoints (-served +of operations):")
}

// operatorRuns are the arguments with which TestOperatorsNeedNoRedis runs each command.
var operatorRuns = map[string][]string{
	"status":       {""},
	"fleet":        {""},
	"watch":        {"plain --for 1s", "--for 1s"},
	"audit":        {"", "plain --limit 1", "--logins"},
	"session list": {""}, "session end": {"0000000000000000-0000000000000000"},
	"usage":       {"plain", "plain --by caller --days 31 --json"},
	"bucket list": {"", "--diff", "--match a --sort waiting --limit 1"}, "bucket show": {"plain"}, "bucket history": {"plain"}, "bucket timetable": {"plain --for 48h"}, "bucket why": {"plain"}, "bucket pause": {"plain --reason leak"}, "bucket resume": {"plain"}, "bucket release": {"plain"},
	"bucket set": {"plain --rate 20/s --shed-low 50"}, "bucket reset": {"plain rate", "plain"}, "bucket purge": {"plain --dry-run", "plain --yes"},
	"pool list": {""}, "pool show": {"vendor"}, "pool set": {"vendor --rate 5/s"}, "pool reset": {"vendor rate", "vendor"}, "pool release": {"vendor"},
	"limit list": {""}, "limit show": {"per-caller"}, "limit refusals": {"per-caller"}, "limit set": {"per-caller --limit 7/m"}, "limit reset": {"per-caller"},
	"group list": {"grouped"}, "group show": {"grouped acme"}, "group pause": {"grouped acme"}, "group resume": {"grouped acme"},
	"group set": {"grouped acme --weight 2"}, "group reset": {"grouped acme weight", "grouped acme"}, "group purge": {"grouped acme --dry-run", "grouped acme --yes"},
	"flow list": {"flowing", "flowing --sort waiting --look 2000 --limit 1"}, "flow show": {"flowing acme"}, "flow pause": {"flowing acme"}, "flow resume": {"flowing acme"}, "flow release": {"flowing acme"},
	"flow enable": {"flowing acme --redrive"}, "flow set": {"flowing acme --weight 2 --url https://a.example/hook"}, "flow reset": {"flowing acme weight", "flowing acme"},
	"flow import":  {"flowing testdata/flows.ndjson"},
	"flow remove":  {"flowing acme --dry-run", "flowing acme --yes"},
	"flow purge":   {"flowing acme --dry-run", "flowing acme --yes"},
	"bucket drain": {"plain --max 1000 --rate 1/s", "plain --stop"},
	"job retry":    {"plain --all", "flowing --flow acme"},
	"job list":     {"plain"}, "job show": {"plain waits"}, "job find": {"waits"}, "job result": {"plain dead0"}, "job cancel": {"plain goes"},
	"bundle open": {"plain seven --size 7"}, "bundle show": {"plain seven"},
	"schedule list": {""}, "schedule show": {"nightly"}, "schedule pause": {"nightly --reason leak"}, "schedule resume": {"nightly"}, "schedule fire": {"nightly"},
	"schedule set":    {`made --bucket plain --cron @daily --dry-run`, `made --bucket plain --cron @daily`},
	"schedule remove": {"made --dry-run", "made --yes"},
	"dead list":       {"plain", "plain --cause permanent"}, "dead show": {"plain dead0"}, "dead export": {"plain --status 404"}, "dead reasons": {"plain", "plain --flow a"},
	"dead redrive": {"plain --status 404 --dry-run", "plain dead0", "plain --reason http_404 --text dead1", "plain --all --limit 1"},
	"dead drop":    {"plain --cause permanent --dry-run", "plain dead3 --yes", "plain --all --yes"},
}

// The first block of each section of the runbooks shows why an alert fires: at night somebody types all of it. It changes nothing.
func TestRunbooksLookBeforeTheyAct(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/runbooks*.md")
	if err != nil || len(pages) < 2 {
		t.Fatalf("found the pages %q: %v", pages, err)
	}
	rows, looks, blocks := operatorTable(t), []string{"doctor", "health", "config check", "config print"}, 0
	for _, name := range pages {
		for _, section := range strings.Split(string(must.Get(os.ReadFile(name))(t)), "\n#")[1:] {
			title, _, _ := strings.Cut(section, "\n")
			_, block, _ := strings.Cut(section, "```sh")
			_, block, _ = strings.Cut(block, "\n") // what follows the language on its line
			block, _, found := strings.Cut(block, "```")
			if found {
				blocks++
			}
			for line := range strings.Lines(block) {
				command, ours := strings.CutPrefix(strings.TrimSpace(line), "bin/dispatcher ")
				if !ours || strings.HasSuffix(command, " --dry-run") {
					continue
				}
				means := func(name string) bool { return command == name || strings.HasPrefix(command, name+" ") }
				at := slices.IndexFunc(rows, func(row operatorRow) bool { return row.command != "" && means(row.command) })
				changes := at < 0 || slices.ContainsFunc(rows[at].endpoints, func(endpoint string) bool { return !strings.HasPrefix(endpoint, "GET ") })
				if changes && !slices.ContainsFunc(looks, means) {
					t.Errorf("%s: %s: the block that shows why has %q, which is not known to change nothing", name, title, line)
				}
			}
		}
	}
	if blocks < 20 {
		t.Errorf("the runbooks have %d blocks of commands", blocks)
	}
}

// Every command of the table runs with a key and no way to Redis, on both servers. A command that changes something is refused with
// a key that may only look.
func TestOperatorsNeedNoRedis(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dispatcher", "producer"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin, adminTable := newKey(t, "root --role admin --bucket *")
			read, readTable := newKey(t, "looker --role read --bucket *")
			server := newOperatedServer(t, name, adminTable+readTable)
			env := func(key string) []string {
				return []string{"TUNDISH_REDIS_URL=redis://127.0.0.1:1", "TUNDISH_KEY=" + key}
			}
			run := func(key, words string) result {
				return command(t.Context(), env(key), "", "dispatcher "+words+" --server "+server.url)
			}
			before := run(read, "bucket list --json")
			for _, row := range operatorTable(t) {
				for _, args := range operatorRuns[row.command] {
					if strings.Contains(row.role, "read") {
						run(read, row.command+" "+args).want(t, 0)
					} else if r := run(read, row.command+" "+args); r.code != 2 || !strings.Contains(r.err, `key "looker" lacks the role`) {
						t.Errorf("%s %s with a key that may only look: %+v", row.command, args, r)
					}
				}
			}
			if after := run(read, "bucket list --json"); after.code != 0 || withoutAges(after.out) != withoutAges(before.out) {
				t.Errorf("a key that may only look has changed something:\n%s", cmp.Diff(before.out, after.out))
			}
			for _, row := range operatorTable(t) {
				if row.command == "" || row.endpoints == nil {
					continue
				}
				server.reset()
				if len(operatorRuns[row.command]) == 0 {
					t.Errorf("%s is never run", row.command)
				}
				for _, args := range operatorRuns[row.command] {
					known := len(server.records(t))
					if r := run(admin, row.command+" "+args); r.code != 0 {
						t.Errorf("%s %s: %+v", row.command, args, r)
					}
					wantRecord(t, row.command, args, name, server.records(t), known)
				}
				must.Equal(t, cmp.Diff(slices.Sorted(slices.Values(row.endpoints)), server.called(t)), "", "endpoints of %s (-in the table +called):", row.command)
			}
			run(admin, "bucket pause plain --json").want(t, 0, `"by": "key root"`)
		})
	}
}

func withoutAges(text string) string {
	return regexp.MustCompile(`"oldest_age_seconds": [0-9.e-]+|"oldest_age": [0-9.e-]+|the oldest [0-9.]+ [a-z]+|"empty": "[^"]*"`).ReplaceAllString(text, "")
}

// operatedServer serves the operator's API and remembers what it was asked.
type operatedServer struct {
	url   string
	audit *audit.Log

	mu    sync.Mutex
	asked []string
}

func (s *operatedServer) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = nil
}

// called are the endpoints that were asked, sorted.
func (s *operatedServer) called(t *testing.T) []string {
	t.Helper()
	endpoints := must.Get(operatorEndpoints())(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []string
	for endpoint := range endpoints {
		pattern := "^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(endpoint), `[^/]+`) + "$"
		if slices.ContainsFunc(s.asked, regexp.MustCompile(pattern).MatchString) {
			found = append(found, endpoint)
		}
	}
	slices.Sort(found)
	return found
}

// newOperatedServer serves buckets with jobs, dead letters, flows and groups on the API of a dispatcher, or of a producer.
func newOperatedServer(t *testing.T, program, keys string) *operatedServer {
	t.Helper()
	client := redistest.Start(t).Client()
	cfg := must.Get(config.Load(config.Options{Env: writeConfig(t, keys)}))(t)
	plain, flowing, grouped := bucket(t, "plain"), bucket(t, "flowing"), bucket(t, "grouped")
	plain.Capacity = 100
	plain.Schedules = []shaper.Schedule{{Name: "nightly", Cron: "0 2 * * *", Job: shaper.ScheduledJob{Payload: []byte("1")}}}
	plain.Pool = &shaper.Pool{Name: "vendor", Rate: plain.Rate, Burst: 1}
	flow, group := shaper.DefaultFlowSettings(), shaper.DefaultGroupSettings()
	flow.Key, group.Key = shaper.FlowKeyJob, shaper.FlowKeyJob
	flowing.Flow, grouped.Flow, grouped.Group = &flow, &flow, &group
	buckets := []shaper.Bucket{plain, flowing, grouped}
	jobs := must.Get(producer.New(producer.Config{Redis: client, Buckets: buckets, Timeout: patience}))(t)
	receipts, err := jobs.Enqueue(t.Context(),
		shaper.Job{Bucket: "plain", ID: "waits", Payload: []byte("1")}, shaper.Job{Bucket: "plain", ID: "goes", Payload: []byte("1")},
		shaper.Job{Bucket: "flowing", Flow: "acme", Payload: []byte("1")}, shaper.Job{Bucket: "grouped", Group: "acme", Flow: "x", Payload: []byte("1")})
	if err != nil || slices.ContainsFunc(receipts, func(r shaper.Receipt) bool { return r.Refusal != nil }) {
		t.Fatal(receipts, err)
	}
	must.Get(jobs.OpenBundle(t.Context(), "plain", shaper.Bundle{ID: "seven", Caller: "root"}))(t)
	pipe := client.Pipeline()
	key := stored.KeyIn("vendor", "plain", "")
	for i := range 6 {
		id := fmt.Sprint("dead", i)
		pipe.HSet(t.Context(), key+"body", id, fmt.Sprintf("%d 1 00000000000cn001 \n{\"n\":%d}", i, i))
		pipe.HSet(t.Context(), key+"meta", id, `5 1 1 0 0 - {"cause":"permanent","status":404,"reason":"http_404","detail":"gone"}`)
		pipe.HSet(t.Context(), key+"results", id, `{"state":"dead","status":404,"headers":{"X-A":["b"]},"reason":"http_404","attempts":1}`+"\nno such thing")
		pipe.ZAdd(t.Context(), key+"dead", redis.Z{Member: id, Score: float64(1783228800000000 + i)})
	}
	must.Get(pipe.Exec(t.Context()))(t)
	op := must.Get(operator.New(operator.Config{Redis: client, Buckets: buckets, Timeout: patience}))(t)
	limits := must.Get(admission.NewLimiter(admission.LimiterConfig{Redis: client, Timeout: patience, Limits: []admission.Limit{{Name: "per-caller", Limit: rateOf(t, "5/m")}}}))(t)
	api := httpapi.NewOps(httpapi.OpsConfig{Buckets: op, Keys: cfg.Keys, Limits: limits, BucketLimits: jobs})
	if program == "producer" {
		api = httpapi.NewProducer(httpapi.ProducerConfig{Jobs: jobs, Operator: op, Keys: cfg.Keys, Limits: limits, BucketLimits: jobs})
	}
	s := &operatedServer{audit: op.Audit()}
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/v1"))
		s.mu.Unlock()
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(served.Close)
	s.url = served.URL
	return s
}

// A producer with operator_api = true serves the commands of operators, and follows the pools of its configuration.
func TestProducerServesOperators(t *testing.T) {
	t.Parallel()
	p := newPlan(t, redistest.Start(t).URL(), `rate = "50/s"`)
	p.rewrite(t, func(text string) string {
		return strings.Replace(text, "[producer]\n", "[producer]\noperator_api = true\n", 1)
	})
	daemon := start(t, p.env, "producer serve")
	daemon.ready(t, p.api)
	run := func(words string) result {
		return command(t.Context(), nil, "", "dispatcher "+words+" --server "+p.api)
	}
	run("bucket pause webhooks --json").want(t, 0, `, a program on the producer's machine"`)
	run("pool list").want(t, 0, "there are no pools")
	p.rewrite(t, func(text string) string { return text + "[[pools]]\nname = \"spare\"\nrate = \"1/h\"\n" })
	eventually(t, "reloaded", func() bool { return daemon.said("configuration reloaded") })
	run("pool list").want(t, 0, "spare  1/h   0          -        not used yet; no bucket of the configuration names it")
	if code := daemon.end(); code != 0 || !daemon.said(`, a program on the producer's machine"`) {
		t.Errorf("the exit code is %d, or the log does not say by whom the bucket was paused", code)
	}
}
