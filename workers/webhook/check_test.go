package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
)

// fields returns the fields that err faults, in order.
func fields(t *testing.T, err error) []string {
	t.Helper()
	var names []string
	var walk func(error)
	walk = func(err error) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				walk(e)
			}
			return
		}
		fault, ok := errors.AsType[*shaper.FieldError](err)
		if !ok {
			t.Errorf("%v (%T) is not a FieldError", err, err)
			return
		}
		names = append(names, fault.Field)
	}
	if err != nil {
		walk(err)
	}
	return names
}

func TestCheckJobURL(t *testing.T) {
	t.Parallel()
	config := DefaultConfig()
	for url, valid := range map[string]bool{
		"https://example.com":                                 true,
		"http://example.com:8080/a/b?c=d&e=%20":               true,
		"HTTPS://EXAMPLE.com/":                                true,
		"https://example.com./":                               true,
		"https://münchen.example/grüße":                       true,
		"https://a_b.example/":                                true,
		"http://[2606:4700::1]:80/":                           true,
		"http://1.1.1.1./":                                    true,
		"https://example.com/" + strings.Repeat("a", 2048-20): true,
		"https://example.com/" + strings.Repeat("a", 2048-19): false,
		"":                               false,
		"example.com":                    false,
		"/relative":                      false,
		"//example.com/":                 false,
		"http:example.com":               false,
		"ftp://example.com/":             false,
		"file:///etc/passwd":             false,
		"gopher://example.com/":          false,
		"unix:///var/run/docker.sock":    false,
		"https://":                       false,
		"https://:443/":                  false,
		"https://user@example.com/":      false,
		"https://user:pw@example.com/":   false,
		"https://example.com/#fragment":  false,
		"https://example.com/#":          false,
		"https://example.com:0/":         false,
		"https://example.com:65536/":     false,
		"https://example.com:http/":      false,
		"https://example.com/a b":        false,
		"https://example.com/?a b":       false,
		"https://example.com/?ü":         false,
		" https://example.com/":          false,
		"https://example.com/\r\nX: y":   false,
		"https://exam\x00ple.com/":       false,
		"https://example.com\\@evil.org": false,
		"https://[::1":                   false,
		"https://[fe80::1%25eth0]/":      false,
		"https://[example.com]/":         false,
		// Spellings of 127.0.0.1 that some resolvers understand.
		"http://127.1/":             false,
		"http://2130706433/":        false,
		"http://0x7f000001/":        false,
		"http://0x7f.0.0.1/":        false,
		"http://0X7F.1/":            false,
		"http://0177.0.0.1/":        false,
		"http://127.0.0.01/":        false,
		"http://1.2.3.4.5/":         false,
		"http://example.com.123:9/": false,
		"http://a..b/":              false,
		"http://a,b/":               false,
	} {
		err := config.CheckJob(&shaper.Job{URL: url, Payload: []byte("1")})
		must.Equal(t, valid, (err == nil), "%.60q: %v, want valid", url, err)
		if got := fields(t, err); err != nil && !slices.Equal(got, []string{"url"}) {
			t.Errorf("%.60q: faults of %q", url, got)
		}
		if err != nil && (strings.Contains(err.Error(), "pw") || strings.Contains(err.Error(), "example.com")) {
			t.Errorf("%.60q: the error repeats it: %v", url, err)
		}
	}
}

// A path that is given for a bucket of webhooks is told as such.
func TestCheckJobPath(t *testing.T) {
	t.Parallel()
	config := DefaultConfig()
	if err := config.CheckJob(&shaper.Job{URL: "/customers/7", Payload: []byte("1")}); err == nil || !strings.Contains(err.Error(), "a path is for buckets that call an API") {
		t.Errorf("a path: %v", err)
	}
}

// An address that no connection would be made to is refused at enqueue; where a name leads
// to is seen at the dial only.
func TestCheckJobAddress(t *testing.T) {
	t.Parallel()
	config := DefaultConfig()
	config.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}
	for url, valid := range map[string]bool{
		"http://10.0.0.1/": false, "http://10.1.2.3/": true, "http://10.1.2.3.:080/": true, "http://①⓪.⓪.⓪.①/": false,
		"http://[::ffff:10.0.0.1]/": false, "http://[::ffff:10.1.2.3]/": true, "http://[fd00:1::1]/": true, "http://[fd00:2::1]/": false,
		"http://127.0.0.1:6379/": false, "http://[::1]/": false, "http://169.254.169.254/": false, "http://168.63.129.16/": false,
		"http://8.8.8.8/": true, "http://[2606:4700::1]/": true, "http://localhost/": true,
	} {
		err := config.CheckJob(&shaper.Job{URL: url, Payload: []byte("1")})
		must.Equal(t, valid, (err == nil), "%s: %v, want valid", url, err)
		if got := fields(t, err); err != nil && !slices.Equal(got, []string{"url"}) {
			t.Errorf("%s: faults of %q", url, got)
		}
	}
	config.URL = "http://10.0.0.1/"
	if err := config.CheckJob(&shaper.Job{Payload: []byte("1")}); err != nil { // the operator's URL is not the job's fault
		t.Error(err)
	}
}

func TestCheckJobURLNotAllowed(t *testing.T) {
	t.Parallel()
	config := DefaultConfig()
	config.URL, config.JobURL = "https://example.com/in", false
	if err := config.CheckJob(&shaper.Job{Payload: []byte("1")}); err != nil {
		t.Errorf("a job without a URL: %v", err)
	}
	err := config.CheckJob(&shaper.Job{URL: "https://other.example/", Method: "OPTIONS", Payload: []byte("1")})
	if !errors.Is(err, ErrURLNotAllowed) || !strings.Contains(err.Error(), "url-not-allowed") {
		t.Errorf("a job with one: %v", err)
	}
	if got := fields(t, err); !slices.Equal(got, []string{"url", "method"}) {
		t.Errorf("faults of %q", got)
	}
}

func TestCheckJobMethodAndHeaders(t *testing.T) {
	t.Parallel()
	many := map[string][]string{}
	for i := range shaper.MaxHeaders + 1 {
		many[fmt.Sprintf("X-%d", i)] = []string{""}
	}
	for name, tt := range map[string]struct {
		job  shaper.Job
		want []string
	}{
		"default":       {shaper.Job{}, nil},
		"put":           {shaper.Job{Method: "PUT"}, nil},
		"patch":         {shaper.Job{Method: "PATCH"}, nil},
		"delete":        {shaper.Job{Method: "DELETE"}, nil},
		"get":           {shaper.Job{Method: "GET"}, []string{"payload"}},
		"lower case":    {shaper.Job{Method: "post"}, []string{"method"}},
		"a job's own":   {shaper.Job{Headers: map[string][]string{"X-A": {"ü"}, "Authorization": {"Bearer x"}, "Idempotency-Key": {"1"}, "Content-Type": {"text/csv"}, "tea": {""}}}, nil},
		"bad name":      {shaper.Job{Headers: map[string][]string{"X A": {""}}}, []string{"headers.X A"}},
		"no name":       {shaper.Job{Headers: map[string][]string{"": {""}}}, []string{"headers."}},
		"line feed":     {shaper.Job{Headers: map[string][]string{"X": {"a\nb"}}}, []string{"headers.X"}},
		"twice":         {shaper.Job{Headers: map[string][]string{"X-A": {"1"}, "x-a": {"2"}}}, []string{"headers.x-a"}},
		"ours":          {shaper.Job{Headers: map[string][]string{"HOST": {""}, "Webhook-Id": {""}, "tundish-attempt": {""}}}, []string{"headers.HOST", "headers.Webhook-Id", "headers.tundish-attempt"}},
		"hop by hop":    {shaper.Job{Headers: map[string][]string{"Connection": {""}, "TE": {""}, "Transfer-Encoding": {""}, "Upgrade": {""}}}, []string{"headers.Connection", "headers.TE", "headers.Transfer-Encoding", "headers.Upgrade"}},
		"length, proxy": {shaper.Job{Headers: map[string][]string{"content-length": {"1"}, "Proxy-Authorization": {""}, "Expect": {"100-continue"}}}, []string{"headers.Expect", "headers.Proxy-Authorization", "headers.content-length"}},
		"underscores":   {shaper.Job{Headers: map[string][]string{"Transfer_Encoding": {""}, "content_length": {""}, "WEBHOOK_ID": {""}, "X_A": {""}}}, []string{"headers.Transfer_Encoding", "headers.WEBHOOK_ID", "headers.content_length"}},
		"two types":     {shaper.Job{Headers: map[string][]string{"content-type": {"text/csv", "text/plain"}}}, []string{"headers.content-type"}},
		"second line":   {shaper.Job{Headers: map[string][]string{"X": {"a", "b\n"}}}, []string{"headers.X"}},
		"too many":      {shaper.Job{Headers: many}, []string{"headers"}},
		"most":          {shaper.Job{Headers: map[string][]string{"X": {strings.Repeat("a", shaper.MaxHeaderBytes-1)}}}, nil},
		"too large":     {shaper.Job{Headers: map[string][]string{"X": {strings.Repeat("a", shaper.MaxHeaderBytes)}}}, []string{"headers"}},
	} {
		tt.job.URL, tt.job.Payload = "https://example.com/", []byte("1")
		if got := fields(t, DefaultConfig().CheckJob(&tt.job)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: faults of %q, want %q", name, got, tt.want)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string // how the error begins; "" for none
	}{
		"defaults":      {func(*Config) {}, ""},
		"bucket's url":  {func(c *Config) { c.URL, c.JobURL = "https://example.com/", false }, ""},
		"no url":        {func(c *Config) { c.JobURL = false }, "webhook.url: "},
		"bad url":       {func(c *Config) { c.URL = "ftp://example.com/" }, "webhook.url: "},
		"no timeout":    {func(c *Config) { c.Timeout = 0 }, "webhook.timeout: 0s: "},
		"long timeout":  {func(c *Config) { c.Timeout = time.Hour }, "webhook.timeout: 1h0m0s: "},
		"no statuses":   {func(c *Config) { c.Policy.Statuses = nil }, "retry.statuses: is empty"},
		"no network":    {func(c *Config) { c.AllowNetworks = make([]netip.Prefix, 1) }, "webhook.allow_networks: "},
		"mapped":        {func(c *Config) { c.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")} }, "webhook.allow_networks: "},
		"no concurreny": {func(c *Config) { c.Concurrency = 0 }, "webhook.concurrency: 0: "},
	} {
		config := DefaultConfig()
		tt.change(&config)
		_, err := New(config)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
