package redisconn

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// topology is the kind of servers that a Redis URL names.
type topology int

const (
	single topology = iota
	sentinel
	cluster
)

// address is a Redis URL, taken apart.
type address struct {
	topology topology
	options  *redis.Options // of one server: credentials, database, TLS, settings of the query
	hosts    []string       // of sentinels or of nodes of a cluster, with ports
	master   string         // the name by which sentinels know it

	sentinelUser string
}

// optionSentinelUser is the option of a query that go-redis does not know.
const optionSentinelUser = "sentinel_user"

// Parts of messages.
const (
	wantURL      = `want "redis://host:6379/0", "redis+sentinel://h1:26379,h2:26379/master" or "redis+cluster://h1:6379,h2:6379", or the same with rediss for TLS`
	wantEncoding = "percent-encode what is special in the password"
)

// CheckURL returns the fault of a URL for [Connect], or nil. The error shows no part of
// the URL that may be secret.
func CheckURL(url string) error {
	_, err := parseAddress(url)
	return err
}

// parseAddress parses a URL. The error shows no secret.
func parseAddress(text string) (*address, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return nil, errors.New(wantURL)
	}
	a := &address{}
	plain := scheme
	switch scheme {
	case "redis", "rediss":
	case "redis+sentinel", "rediss+sentinel":
		a.topology, plain = sentinel, strings.TrimSuffix(scheme, "+sentinel")
	case "redis+cluster", "rediss+cluster":
		a.topology, plain = cluster, strings.TrimSuffix(scheme, "+cluster")
	default:
		return nil, errors.New(wantURL)
	}
	if strings.Contains(rest, "#") {
		return nil, errors.New(`has a "#"; ` + wantEncoding)
	}
	authority, path, query := apart(rest)
	if a.topology == single {
		options, err := parseOne(text)
		a.options = options
		return a, err
	}
	user, hosts := "", authority
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, hosts = authority[:at+1], authority[at+1:]
	}
	port := "6379"
	if a.topology == sentinel {
		port = "26379"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		one, err := hostPort(host, port)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(a.hosts, one) {
			a.hosts = append(a.hosts, one)
		}
	}
	database, err := a.readPath(strings.Trim(path, "/"))
	if err != nil {
		return nil, err
	}
	if query, err = a.takeOwn(query); err != nil {
		return nil, err
	}
	// The rest is parsed as a URL of the first host alone.
	a.options, err = parseOne(plain + "://" + user + a.hosts[0] + database + query)
	if err != nil {
		return nil, err
	}
	if a.options.TLSConfig != nil {
		a.options.TLSConfig.ServerName = "" // each server has a name of its own
	}
	return a, nil
}

// apart cuts what follows "://"; the query begins with its question mark.
func apart(rest string) (authority, path, query string) {
	if i := strings.Index(rest, "?"); i >= 0 {
		rest, query = rest[:i], rest[i:]
	}
	if i := strings.Index(rest, "/"); i >= 0 {
		rest, path = rest[:i], rest[i:]
	}
	return rest, path, query
}

// hostPort reads one of a list of hosts.
func hostPort(text, port string) (string, error) {
	u, err := url.Parse("redis://" + text)
	if err != nil || u.Host != text || u.Hostname() == "" || strings.ContainsAny(text, " %") {
		return "", errors.New("has a host that is not host:port; " + wantEncoding)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("has a port that is not 1 to 65535")
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// readPath reads master/db, and returns the path of the database.
func (a *address) readPath(path string) (string, error) {
	if a.topology == cluster {
		if path != "" && path != "0" {
			return "", errors.New("has a path, and a cluster has no databases")
		}
		return "", nil
	}
	master, database, found := strings.Cut(path, "/")
	name, err := url.PathUnescape(master)
	if err != nil || name == "" {
		return "", errors.New(`does not name the master, as "redis+sentinel://h1,h2/mymaster" does`)
	}
	a.master = name
	if found {
		return "/" + database, nil
	}
	return "", nil
}

// takeOwn removes the options of this project from a query.
func (a *address) takeOwn(query string) (string, error) {
	values, err := url.ParseQuery(strings.TrimPrefix(query, "?"))
	if err != nil {
		return "", errors.New("has options that cannot be read after its question mark")
	}
	if a.topology == sentinel {
		a.sentinelUser = values.Get(optionSentinelUser)
		values.Del(optionSentinelUser)
	}
	if len(values) == 0 {
		return "", nil
	}
	return "?" + values.Encode(), nil
}

// parseOne reads the URL of one server.
func parseOne(text string) (*redis.Options, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("is not a URL; " + wantEncoding)
	case u.Hostname() == "":
		return nil, errors.New(`has no host; want "redis://host:6379/0"`)
	case u.Query().Has("password") || u.Query().Has("sentinel_password"):
		return nil, errors.New("has a password after the question mark: write redis://user:password@host, or use the setting for it")
	case u.Query().Has("skip_verify"):
		return nil, errors.New("has skip_verify, which accepts the certificate of any server: leave it out, and name its authority (redis.tls_ca, redisconn.TLSOptions.CA)")
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, errors.New("has a path or an option that is not one of Redis; want a database number and the options of go-redis")
	}
	return o, nil
}

// RedactURL hides the password in a Redis URL, and whatever looks like one, for logs and messages. It also hides a user name without a password: some
// programs take "redis://secret@host" for a password.
func RedactURL(url string) string {
	at := strings.LastIndex(url, "@")
	if at < 0 {
		return redactQuery(url)
	}
	scheme, rest, ok := strings.Cut(url[:at], "://")
	if !ok { // not a URL, but perhaps meant as one
		return "***@" + redactQuery(url[at+1:])
	}
	user, password, _ := strings.Cut(rest, ":")
	shown := user + ":***@"
	if password == "" {
		shown = "***@"
	}
	return scheme + "://" + shown + redactQuery(url[at+1:])
}

func redactQuery(text string) string {
	rest, query, ok := strings.Cut(text, "?")
	if !ok {
		return text
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		if name, _, ok := strings.Cut(part, "="); ok && strings.Contains(strings.ToLower(name), "pass") {
			parts[i] = name + "=***"
		}
	}
	return rest + "?" + strings.Join(parts, "&")
}
