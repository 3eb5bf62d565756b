package test

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tundish-io/tundish/internal/checker"
	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// hostFault is a fault of the host of one of two dispatchers.
type hostFault struct {
	reason string        // as metric and log name it
	hold   time.Duration // how long the receiver takes
	host   string        // of the receivers, with the number of the flow

	// around is plan.around of a receiver at an address that has a socket too.
	around func(t *testing.T, server *redistest.Server, receiver, socket string, i int, ops string, command []string) []string
}

// receiverHost is where the receivers listen.
const receiverHost = "127.0.1.1"

var hostFaults = map[string]hostFault{
	"the resolver does not answer": {reason: "local_resolver", host: "r%d.receivers.test", around: resolvers(82, func(*dnsmessage.Message) bool { return false })},
	"the resolver fails": {reason: "local_resolver", host: "r%d.receivers.test", around: resolvers(84, func(reply *dnsmessage.Message) bool {
		reply.RCode, reply.Answers = dnsmessage.RCodeServerFailure, nil
		return true
	})},
	"few descriptors": {
		reason: "local_descriptors", hold: time.Second, host: receiverHost,
		around: func(_ *testing.T, _ *redistest.Server, _, _ string, i int, _ string, command []string) []string {
			if i == 0 {
				return command
			}
			return append([]string{"sh", "-c", `ulimit -n 40; exec "$0" "$@"`}, command...)
		},
	},
	"no route":  {reason: "local_route", host: receiverHost, around: networks(false, `ip route del local 127.0.0.0/8 dev lo table local; ip route show table local | grep -q "127.0.0.1 " || ip route add local 127.0.0.1 dev lo table local`)},
	"few ports": {reason: "local_ports", hold: time.Second, host: receiverHost, around: networks(true, `echo "50000 50009" >/proc/sys/net/ipv4/ip_local_port_range`)},
}

// resolvers gives the first dispatcher a resolver that works, and the second one another. They have two addresses from 127.0.0.n on.
func resolvers(n int, answer func(reply *dnsmessage.Message) bool) func(*testing.T, *redistest.Server, string, string, int, string, []string) []string {
	return func(t *testing.T, _ *redistest.Server, _, _ string, i int, _ string, command []string) []string {
		needsNamespaces(t, "--mount", "mount --bind /dev/null /etc/resolv.conf")
		if i == 0 {
			return resolvedBy(t, fmt.Sprintf("127.0.0.%d", n), nil, command)
		}
		return resolvedBy(t, fmt.Sprintf("127.0.0.%d", n+1), answer, command)
	}
}

// networks gives the second dispatcher a network of its own, made by a command of the shell, in which the receiver may listen too.
func networks(withReceiver bool, setup string) func(*testing.T, *redistest.Server, string, string, int, string, []string) []string {
	return func(t *testing.T, server *redistest.Server, receiver, socket string, i int, ops string, command []string) []string {
		if i == 0 {
			return command
		}
		needsNamespaces(t, "--net", loopback+setup)
		calls := map[string]string{server.Addr(): server.Socket()}
		if withReceiver {
			calls[receiver] = socket
		}
		return commandApart(t, setup, ops, calls, command)
	}
}

// TestLocalFaults: of two dispatchers one cannot connect, because of a fault of its own host. No job spends its only attempt, no breaker opens, and the
// other dispatcher sends what this one cannot.
func TestLocalFaults(t *testing.T) {
	for name, fault := range hostFaults {
		t.Run(name, func(t *testing.T) {
			harness.BesideOthers(t)
			testLocalFault(t, fault)
		})
	}
}

func testLocalFault(t *testing.T, fault hostFault) {
	const rate, flows = 100, 10
	jobs := 600
	if redistest.Soak {
		jobs = 3000
	}
	server := redistest.Start(t)
	listener, err := listenAt(net.JoinHostPort(receiverHost, "0"))
	if err != nil {
		t.Skipf("this test needs the address %s: %v", receiverHost, err)
	}
	receiver, socket := listener.Addr().String(), filepath.Join(t.TempDir(), "receiver")
	forward(t, socket, receiver)
	commands := map[int][]string{}
	s := start(t, server, harness.Plan{
		Rate: rate, Dispatchers: 2, Lease: 10 * time.Second, Retry: "max_attempts = 1", Bucket: "[buckets.flow]\nkey = \"job\"",
		Around: func(i int, ops string, command []string) []string {
			if commands[i] == nil {
				commands[i] = fault.around(t, server, receiver, socket, i, ops, command)
			}
			return commands[i]
		},
	})
	s.Dispatchers[0].Stop(t) // the one that works
	respond := func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
		w.Header().Set("Connection", "close")
		select {
		case <-time.After(fault.hold):
		case <-r.Context().Done():
		}
	}
	receivers := http.Server{Handler: &checker.Receiver{History: s.History, Respond: respond}}
	go func() { _ = receivers.Serve(listener) }()
	t.Cleanup(func() { receivers.Close() })

	_, port, _ := net.SplitHostPort(receiver)
	lines := make([]string, jobs)
	for i := range lines {
		host := fault.host
		if strings.Contains(host, "%d") {
			host = fmt.Sprintf(host, i%flows)
		}
		lines[i] = fmt.Sprintf(`{"id":"local-%d","payload":{},"flow":"f%d","url":"http://%s"}`, i, i%flows, net.JoinHostPort(host, port))
	}
	s.PostLines(lines)
	faults := func(dispatcher int) float64 {
		return s.Metric(dispatcher, "tundish_local_faults_total", fmt.Sprintf("reason=%q", fault.reason))
	}
	dead := func() int64 { return s.Inspector.ZCard(t.Context(), s.Key("dead")).Val() }
	harness.Await(t, 20*time.Second, "the dispatcher counts faults of its host", func() bool {
		if n := dead(); n > 0 {
			t.Fatalf("%d dead letters, and %.0f faults of the host", n, faults(1))
		}
		return faults(1) > 0
	})
	s.Dispatchers[0] = s.Restart[0]()
	began, left := time.Now(), s.Unfinished()
	open := 0.
	harness.Await(t, time.Duration(4*jobs/rate)*time.Second, "all jobs are done", func() bool {
		open = max(open, s.Metric(0, "tundish_breakers", `bucket="webhooks"`))
		return s.Unfinished() == 0
	})
	share := float64(left) / time.Since(began).Seconds() / rate
	here, there := 0., faults(0)
	harness.Await(t, 10*time.Second, "the API of the dispatcher answers", func() bool {
		here = faults(1)
		return here > 0
	})
	r := s.History.Check()
	harness.Report(t, rate, r)
	t.Logf("%.0f faults of the host; %.0f %% of the rate since the other dispatcher began", here, 100*share)
	if dead() > 0 || open > 0 || r.Extra > 0 || r.Err() != nil {
		t.Errorf("%d dead letters, %.0f breakers open, %d sent twice, %v; want none", dead(), open, r.Extra, r.Err())
	}
	if there != 0 {
		t.Errorf("the dispatcher that works counts %.0f faults of its host", there)
	}
	if log := s.Dispatchers[1].Output.String(); !strings.Contains(log, "this host could not connect") || !strings.Contains(log, fault.reason) {
		t.Errorf("the log of the dispatcher does not name %s", fault.reason)
	}
	if redistest.Soak && share < 0.9 {
		t.Errorf("%.0f %% of the rate", 100*share)
	}
}
