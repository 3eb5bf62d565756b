package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tundish-io/tundish/internal/httpapi"
)

// What a command says when the server is no operator's API.
func TestServersThatAreNone(t *testing.T) {
	t.Parallel()
	serve := func(handler http.Handler) string {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return server.URL
	}
	site := newSite(t)
	producerOnly := serve(httpapi.NewProducer(httpapi.ProducerConfig{Jobs: site.client}))
	page := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	away := serve(http.RedirectHandler("https://elsewhere.example/", http.StatusTemporaryRedirect))
	for _, test := range []struct {
		words string
		code  int
		says  string
	}{
		{"bucket list --server " + producerOnly, 2, "has no operator's API: --server is a dispatcher (dispatcher.listen), or a producer with producer.operator_api = true"},
		{"bucket pause webhooks --server " + producerOnly, 2, "has no operator's API"},
		{"job list webhooks --server " + producerOnly, 2, "has no operator's API"},
		{"job show webhooks nosuch --server " + producerOnly, 4, `no such job: "nosuch"`},
		{"bucket list --server " + page, 5, "but not as Tundish does: is --server right?"},
		{"bucket list --server " + away, 5, "but not as Tundish does: is --server right?"},
		{"bucket list --server 127.0.0.1:1", 5, "no server at http://127.0.0.1:1 "},
		{"bucket list --server ftp://127.0.0.1", 2, "is not an address"},
		{"bucket list --server http:// --key x", 2, "is not an address"},
		{"bucket list --server " + page + " --key env:NOSUCH", 2, "no API key: "},
		{"bucket list --key x", 2, "--key goes with --server"},
		{"watch --for 1m", 5, "Redis at redis://127.0.0.1:1 does not answer"},
		{"watch webhooks --for 1m", 5, "does not answer"},
		{"doctor --server " + page, 2, "unknown flag: --server"},
	} {
		r := command(t.Context(), []string{"TUNDISH_REDIS_URL=redis://127.0.0.1:1"}, "", "dispatcher "+test.words)
		if r.want(t, test.code, test.says); r.out != "" {
			t.Errorf("%s: stdout says %q", test.words, r.out)
		}
	}
}

// The answers of a server get the exit codes of the same faults without a server.
func TestExitCodesOfAnswers(t *testing.T) {
	t.Parallel()
	secret, table := newKey(t, "root --role admin --bucket *")
	server := newOperatedServer(t, "dispatcher", table)
	run := func(words string) result {
		return command(t.Context(), []string{"TUNDISH_KEY=" + secret}, "", "dispatcher "+words+" --server "+server.url)
	}
	run("bucket show nosuch").want(t, 4, `unknown bucket "nosuch": the configuration has plain, flowing, grouped`)
	run("pool show nosuch").want(t, 4, `unknown pool "nosuch": the buckets of the configuration are in vendor`)
	run("job show plain nosuch").want(t, 4, `no such job: "nosuch"`)
	run("job cancel plain dead0").want(t, 1, "it is dead; drop it with")
	run("job result plain dead0").want(t, 0, "404", "X-A: b", "no such thing")
	run("job result plain waits").want(t, 4, "is queued")
	run("job result plain nosuch").want(t, 4, `no such job: "nosuch"`)
	run("flow show plain acme").want(t, 2, "the bucket has no flows: it is configured without [buckets.flow]. For flows that jobs name, configure it with [buckets.flow] and key = ")
	run("flow show grouped x").want(t, 2, "say with --group")
	run("flow pause flowing acmee").want(t, 4, "has no flow \"acmee\" now", "--create")
	run("bucket set plain --capacity 0").want(t, 2, `bucket "plain": capacity: 0: want 1 to`)
	run("bucket reset plain name").want(t, 2, "name: is no setting that can be changed")
	run("dead drop plain nosuch dead0").want(t, 4, "dropped: 1 dead letter", `"nosuch" is unknown`)
	run("dead redrive plain nosuch").want(t, 4, "1 of the ids are no dead letters")
	command(t.Context(), []string{"TUNDISH_KEY=wrong"}, "", "dispatcher bucket list --server "+server.url).want(t, 2, "does not know the API key", "TUNDISH_KEY")
	command(t.Context(), nil, "", "dispatcher bucket list --server "+server.url).want(t, 2, "the request has no API key", "TUNDISH_KEY")
}
