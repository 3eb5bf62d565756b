//go:build soak

package soak

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/redisconn"
	"github.com/tundish-io/tundish/test/harness"
)

// tlsArgs have a server speak TLS at an address as well, and only TLS with its like.
func tlsArgs(t *testing.T, files redistest.Certificates) (addr string, args []string) {
	t.Helper()
	addr = redistest.FreeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return addr, []string{
		"--tls-port", port, "--tls-cert-file", files.Cert, "--tls-key-file", files.Key, "--tls-ca-cert-file", files.CA,
		"--tls-replication", "yes",
	}
}

// trust has all programs that are started from now on use the certificates.
func trust(t *testing.T, files redistest.Certificates) {
	t.Helper()
	t.Setenv("TUNDISH_REDIS_TLS_CA", files.CA)
	t.Setenv("TUNDISH_REDIS_TLS_CERT", files.Cert)
	t.Setenv("TUNDISH_REDIS_TLS_KEY", files.Key)
}

// drainsOverTLS has a bucket in a Redis of that URL filled and drained by the programs,
// while what speaks no TLS is refused.
func drainsOverTLS(t *testing.T, server *redistest.Server, url string) {
	t.Helper()
	const rate, jobs = 200, 200
	plain, err := redisconn.Connect(strings.Replace(url, "rediss+", "redis+", 1), redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.HLen(t.Context(), harness.BusyKey).Err(); err == nil {
		t.Error("a client without TLS is answered at the same addresses")
	}
	s := start(t, server, harness.Plan{Rate: rate, Dispatchers: 2, RedisURL: url})
	s.Post("tls", jobs)
	s.AwaitDelivered(20 * time.Second)
	harness.Await(t, 10*time.Second, "everything is settled", func() bool {
		_, answer := s.Request("GET", "/v1/buckets/"+harness.BucketName+"/jobs/tls-0", "", nil)
		return strings.Contains(string(answer), `"done"`)
	})
	r := s.History.Check()
	harness.Report(t, rate, r)
	if r.Err() != nil || r.Extra > 0 {
		t.Errorf("%v; came twice: %v", r.Err(), r.Duplicated)
	}
}

// TestTLSWithCluster: the programs talk TLS to all nodes of a cluster, whose map tells
// them the ports for that, and the nodes to each other.
func TestTLSWithCluster(t *testing.T) {
	const masters, slotCount = 3, 16384
	files := redistest.NewCertificates(t)
	trust(t, files)
	var nodes []*redistest.Server
	var addrs []string
	for range masters {
		addr, args := tlsArgs(t, files)
		nodes = append(nodes, redistest.Start(t, append(args, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--tls-cluster", "yes")...))
		addrs = append(addrs, addr)
	}
	for i, node := range nodes {
		client := node.Client()
		do := func(words ...any) {
			t.Helper()
			if err := client.Do(t.Context(), append([]any{"CLUSTER"}, words...)...).Err(); err != nil {
				t.Fatalf("%v: %v", words, err)
			}
		}
		do("ADDSLOTSRANGE", slotCount*i/masters, slotCount*(i+1)/masters-1)
		do("SET-CONFIG-EPOCH", i+1)
		if host, port, _ := net.SplitHostPort(addrs[0]); i > 0 {
			do("MEET", host, port)
		}
	}
	harness.Await(t, 20*time.Second, "all nodes say that the cluster is well", func() bool {
		for _, node := range nodes {
			info := node.Client().ClusterInfo(t.Context()).Val()
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprint("cluster_known_nodes:", masters)) {
				return false
			}
		}
		return true
	})
	drainsOverTLS(t, nodes[0], "rediss+cluster://"+strings.Join(addrs, ","))
	keys := 0
	for _, node := range nodes {
		n, err := node.Client().DBSize(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		keys += int(n)
	}
	t.Logf("%d keys in %d nodes", keys, masters)
}

// TestTLSWithSentinel: the programs ask a sentinel over TLS for the master, and talk
// TLS to that.
func TestTLSWithSentinel(t *testing.T) {
	files := redistest.NewCertificates(t)
	trust(t, files)
	masterAddr, args := tlsArgs(t, files)
	master := redistest.Start(t, args...)
	sentinelAddr, args := tlsArgs(t, files)
	startTLSSentinel(t, masterAddr, args)
	drainsOverTLS(t, master, "rediss+sentinel://"+sentinelAddr+"/"+redistest.MasterName)
}

// startTLSSentinel starts one that watches a master over TLS, and waits until it does.
// It ends with us, also when we are killed.
func startTLSSentinel(t *testing.T, masterAddr string, args []string) {
	t.Helper()
	host, port, err := net.SplitHostPort(masterAddr)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sentinel-") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %s %s %s 1\n", redistest.MasterName, host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	args = append([]string{"-c", `redis-server "$@" & read -r _; kill -9 $!; wait`, "sentinel", file, "--sentinel", "--port", "0",
		"--unixsocket", socket, "--dir", dir}, args...)
	shell := exec.Command("sh", args...)
	output := &harness.LockedBuffer{}
	shell.Stdout, shell.Stderr = output, output
	stdin, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1, Protocol: 2})
	t.Cleanup(func() {
		_ = client.Close()
		_ = stdin.Close()
		_ = shell.Wait() // it was killed
		if t.Failed() {
			t.Logf("sentinel:\n%s", output)
		}
	})
	harness.Await(t, 20*time.Second, "the sentinel watches the master", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		known, err := client.Do(ctx, "SENTINEL", "MASTER", redistest.MasterName).StringSlice()
		return err == nil && strings.Contains(strings.Join(known, " "), "flags master ")
	})
}
