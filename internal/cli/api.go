package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/app"
	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/internal/session"
)

const (
	operatorTimeout = 60 * time.Second // a server responds to a purge within 20 s
	maxView         = 256 << 20        // bytes of one response
	pageOfJobs      = 200              // jobs in one response, whose payloads may be large
)

// api calls the operator's API: a server's, or this process's on the Redis of the configuration.
type api struct {
	http   *http.Client
	server string
	key    config.Secret
	bound  int64 // bytes of a response

	config *config.Config // of a command that uses Redis directly; nil with --server

	requestID string // the id of all requests of a command
	part      string // the token of the last part of an operation: with it the next part joins its record in the audit
}

// serverFlags adds --server and --key to the commands below cmd.
func (a *invocation) serverFlags(cmd *cobra.Command) *cobra.Command {
	flags := cmd.PersistentFlags()
	flags.StringVar(&a.serverURL, "server", "", "`address` of a dispatcher's API, or of a producer's with producer.operator_api; nothing else is needed then (default: go to Redis)")
	flags.StringVar(&a.key, "key", "", "with --server: API `key`, or file:/path or env:NAME (default: TUNDISH_KEY, or the file TUNDISH_KEY_FILE)")
	return cmd
}

// withAPI runs do with the operator's API, and explains its error.
func (a *invocation) withAPI(ctx context.Context, do func(ctx context.Context, c *api) error) error {
	if a.serverURL == "" {
		if a.key != "" {
			return fail(exitUsage, "--key goes with --server: without it the command goes to Redis, which knows no API keys")
		}
		err := a.withStation(ctx, func(ctx context.Context, s *station) error {
			c := s.api()
			err := do(ctx, c)
			if codeOf(err) == exitNotFound && c.readNone() {
				a.note(noConfiguration)
			}
			return err
		})
		if missesVariable(err) {
			return a.onDispatcher(ctx, err, do)
		}
		return err
	}
	return a.onServer(ctx, a.serverURL, do)
}

// onDispatcher runs do with the operator's API of the configured dispatcher, because this process lacks secrets of the configuration. Only the
// dispatcher of an embedded store is certain to be the right one: another may run here for another Redis.
func (a *invocation) onDispatcher(ctx context.Context, lacks error, do func(ctx context.Context, c *api) error) error {
	cfg, err := a.addresses()
	if err != nil || !cfg.Redis.URL.Embedded() {
		return fmt.Errorf("%w\na running dispatcher has the secret: with --server, such as http://127.0.0.1:8081, this command needs no configuration", lacks)
	}
	server := "http://" + reachable(cfg.Dispatcher.Listen)
	err = a.onServer(ctx, server, do)
	if codeOf(err) == exitUnreachable {
		return fmt.Errorf("%w\nso it asked the dispatcher, which has the secret: %w", lacks, err)
	}
	return err
}

// onServer runs do with the operator's API of a server.
func (a *invocation) onServer(ctx context.Context, address string, do func(ctx context.Context, c *api) error) error {
	key, err := a.clientKey(a.key)
	if err != nil {
		return err
	}
	server, err := a.server(address)
	if err != nil {
		return err
	}
	if u, err := url.Parse(server); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fail(exitUsage, "--server %q is not an address: want one such as http://127.0.0.1:8081", line(address, 200))
	}
	c := &api{http: newHTTPClient(operatorTimeout), server: server, key: key, bound: maxView, requestID: newRequestID()}
	defer c.http.CloseIdleConnections()
	return do(ctx, c)
}

// noConfiguration explains why something is not known.
const noConfiguration = "no configuration was read here: name the file with --config, or ask a running dispatcher with --server, such as http://127.0.0.1:8081"

// readNone reports whether the command uses Redis directly and found no configuration file.
func (c *api) readNone() bool { return c.config != nil && c.config.File == "" }

// api is the operator's API in this process, on the Redis of the station.
func (s *station) api() *api {
	local := httpapi.NewLocal(httpapi.OpsConfig{
		Buckets: s.operator, CheckCallbacks: app.CheckCallbacks(s.config), Pools: s.config.Pools, Keys: s.config.Keys, Limits: s.limiter, BucketLimits: s.client, Sessions: session.New(s.redis),
	}, author())
	return &api{http: &http.Client{Transport: local}, server: "http://localhost", config: s.config, bound: maxView, requestID: newRequestID()}
}

func newRequestID() string { return strings.ToLower(rand.Text()) }

// problem is an error response.
type problem struct {
	answer
	Moved   int   `json:"moved"` // before it failed, as Dropped and Purged
	Dropped int   `json:"dropped"`
	Purged  int64 `json:"purged"`

	cause error // of Redis, if the API is in this process
}

func (p *problem) Error() string {
	if p.Code == "invalid" && len(p.Errors) > 0 {
		texts := make([]string, len(p.Errors))
		for i, e := range p.Errors {
			texts[i] = strings.TrimPrefix(e.Field+": "+e.Reason, "body: ")
		}
		return line(strings.Join(texts, "; "), 2000)
	}
	return p.reason()
}

func (p *problem) Unwrap() error { return p.cause }

// exitCode returns the exit code of the status, except that a bucket without flows or groups is wrong usage.
func (p *problem) exitCode() int {
	switch p.Code {
	case "no-flows", "no-groups", "too-large", "unsupported-media-type":
		return exitUsage
	}
	return p.answer.exitCode()
}

// call carries out an operation, and returns its response. An error response is a [*problem].
func call[In, Out any](ctx context.Context, c *api, op *httpapi.Operation[In, *Out], in In) (*Out, error) {
	target, body, err := op.Request(&in)
	if err != nil {
		return nil, err
	}
	out := new(Out)
	return out, c.send(ctx, op.Method, target, op.ContentType(), body, out)
}

// Bounds of the requests that are sent again while the server's Redis is too slow for it.
const (
	retryWithin = 10 * time.Second
	retryEvery  = time.Second
)

// send sends a request and reads the response into view. body is nil for a request without one. A server waits for Redis as long as a daemon does, which
// is short on a busy machine: after a 503 for that, send repeats the request at the time in the response.
func (c *api) send(ctx context.Context, method, target, contentType string, body []byte, view any) error {
	for began := time.Now(); ; {
		err := c.sendOnce(ctx, method, target, contentType, body, view)
		p, isOne := errors.AsType[*problem](err)
		again := isOne && c.config == nil && p.Code == "store-unavailable" && p.Moved+p.Dropped == 0 && p.Purged == 0 && !strings.HasSuffix(target, "/fire")
		if !again || time.Since(began) > retryWithin || pause(ctx, retryEvery) != nil {
			return err
		}
	}
}

func (c *api) sendOnce(ctx context.Context, method, target, contentType string, body []byte, view any) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cause := httpapi.WithCause(ctx)
	req, err := c.request(ctx, method, target, contentType, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(ctx, method, err)
	}
	defer resp.Body.Close()
	if part := resp.Header.Get(httpapi.HeaderPart); part != "" {
		c.part = part
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, c.bound+1))
	switch {
	case err != nil:
		return c.unreachable(ctx, method, err)
	case int64(len(text)) > c.bound:
		return fail(exitFailed, "%s answers more than %d bytes: ask for fewer with --limit", c.server, c.bound)
	}
	if resp.StatusCode/100 == 2 && json.Unmarshal(text, view) == nil {
		return nil
	}
	return c.problemOf(resp, text, *cause)
}

// request builds a request. body is nil for a request without one.
func (c *api) request(ctx context.Context, method, target, contentType string, body []byte) (*http.Request, error) {
	var sent io.Reader = http.NoBody
	if body != nil {
		sent = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.server+target, sent)
	if err != nil {
		return nil, fail(exitUsage, "--server %q is not an address: %w", c.server, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("X-Request-Id", c.requestID)
	if c.config == nil {
		req.Header.Set(httpapi.HeaderUser, strings.TrimPrefix(author(), "user "))
	}
	if c.part != "" {
		req.Header.Set(httpapi.HeaderPart, c.part)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key.Reveal())
	}
	return req, nil
}

// problemOf explains an unexpected response. cause is the error of Redis, if the API is in this process.
func (c *api) problemOf(resp *http.Response, text []byte, cause error) error {
	p := &problem{}
	if json.Unmarshal(text, p) != nil || p.Code == "" {
		return fail(exitUnreachable, "%s answers %s, but not as Tundish does: is --server right?", c.server, resp.Status)
	}
	if p.Code == "unknown-route" || p.Code == "method-not-allowed" {
		return fail(exitUsage, "%s has no operator's API: --server is a dispatcher (dispatcher.listen), or a producer with producer.operator_api = true", c.server)
	}
	p.Status, p.cause = resp.StatusCode, cause
	return p
}

// unreachable explains what to do without a response.
func (c *api) unreachable(ctx context.Context, method string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err = withoutURL(err); isDial(err) {
		return fail(exitUnreachable, "no server at %s (%w): is it running, and is --server right?", c.server, err)
	}
	next := "try again"
	if method != http.MethodGet {
		next = "the change may have been made; look before you make it again"
	}
	return fail(exitUnreachable, "%s gave no answer (%w): %s", c.server, err, next)
}

// buckets reads all buckets.
func (c *api) buckets(ctx context.Context) ([]*opsview.Bucket, error) {
	list, err := call(ctx, c, httpapi.ListBuckets, httpapi.BucketsQuery{})
	if err != nil {
		return nil, err
	}
	return list.Buckets, nil
}

// bucket reads one bucket.
func (c *api) bucket(ctx context.Context, name string) (*opsview.Bucket, error) {
	return call(ctx, c, httpapi.ShowBucket, httpapi.BucketName{Bucket: name})
}

// named adds to a validation error which object is not valid. Other errors stay as they are.
func named(err error, what, name string) error {
	p, ok := errors.AsType[*problem](err)
	if !ok || p.Code != "invalid" {
		return err
	}
	return fail(exitUsage, "%s %q: %w", what, name, p)
}

// on returns the RunE of a command that carries out an operation on the object NAME, a bucket for example. The command prints the text that say makes of
// the response, or the response as JSON.
func on[In, Out any](a *invocation, what string, op *httpapi.Operation[In, *Out], ask func(cmd *cobra.Command, args []string) (In, error), say func(*Out) string) func(*cobra.Command, []string) error {
	return show(a, what, op, ask, func(w io.Writer, out *Out) { fmt.Fprintln(w, say(out)) })
}

// show returns the RunE of a command like [on], which prints the response as table writes it, with columns aligned at tabs.
func show[In, Out any](a *invocation, what string, op *httpapi.Operation[In, *Out], ask func(cmd *cobra.Command, args []string) (In, error), table func(w io.Writer, out *Out)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		in, err := ask(cmd, args)
		if err != nil {
			return err
		}
		return a.withAPI(cmd.Context(), func(ctx context.Context, c *api) error {
			out, err := call(ctx, c, op, in)
			if err != nil {
				return named(err, what, args[0])
			}
			return a.print(out, func(w io.Writer) { table(w, out) })
		})
	}
}

// asking returns the ask of a command whose input cannot be wrong.
func asking[In any](in func(args []string) In) func(*cobra.Command, []string) (In, error) {
	return func(_ *cobra.Command, args []string) (In, error) { return in(args), nil }
}

// author names the user of this program as the author of a change.
func author() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "user " + u.Username
	}
	return fmt.Sprintf("user %d", os.Getuid())
}
