//go:build soak

package soak

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

// TestRollingPods: all pods of a chart's release are replaced three times under load, as Kubernetes does it and with the times of deploy/kubernetes/tundish.yaml,
// with processes for pods. A new pod is ready before an old one is told to end. The old one loses its place in the service, sleeps, gets SIGTERM, and has the rest
// of its grace period. A client learns late that it has left. Nothing is lost or doubled, no request fails, and the rate is kept.
func TestRollingPods(t *testing.T) {
	const rate, rounds, replicas = 200, 3, 2
	harness.Quietly(t, func(t *testing.T, stall *harness.StallWatch) string {
		s := start(t, redistest.Start(t), harness.Plan{Rate: rate, Hold: 300 * time.Millisecond}) // so that each stop finds deliveries and requests under way
		s.Post("before", rate)                                                                    // a backlog, so that the rate of deliveries is the bucket's
		s.Producer.Stop(t)
		c := &podCluster{system: s, times: chartTimes(t), running: map[string][]*rollingPod{}}
		for _, program := range []string{"dispatcher", "producer"} {
			for range replicas {
				c.running[program] = append(c.running[program], c.begin(program))
			}
		}
		end := c.sendAt(rate)
		for range rounds {
			c.roll("dispatcher", "producer")
		}
		end()
		if len(c.failed) > 0 {
			t.Fatalf("%d requests failed, such as %q", len(c.failed), c.failed[:min(3, len(c.failed))])
		}
		t.Logf("%d pods ended, each after %s at most", 2*rounds*replicas, c.slowest.Round(time.Millisecond))
		admitted := s.History.Check().Admitted
		if fault := s.keptOn(stall, rate, admitted); fault != "" {
			return fault
		}
		return stall.Slow(s.History.Check().Rate, rate, admitted, .97)
	})
}

// podTimes are what the chart says of the end of a pod.
type podTimes struct{ sleep, shutdown, grace time.Duration }

// chartTimes reads the times of both programs in the manifests that the chart makes.
func chartTimes(t *testing.T) map[string]podTimes {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/tundish.yaml")
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]podTimes{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		program := regexp.MustCompile(`(?m)^ +command: \[(\w+),`).FindStringSubmatch(document)
		if program == nil {
			continue
		}
		seconds := func(pattern string) time.Duration {
			found := regexp.MustCompile(pattern).FindStringSubmatch(document)
			if found == nil {
				t.Fatalf("the manifest of %s has no %s", program[1], pattern)
			}
			n, err := strconv.Atoi(found[1])
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(n) * time.Second
		}
		times[program[1]] = podTimes{
			sleep:    seconds(`preStop:\s+sleep:\s+seconds: (\d+)`),
			shutdown: seconds(`TUNDISH_` + strings.ToUpper(program[1]) + `_SHUTDOWN_TIMEOUT\s+value: (\d+)s`),
			grace:    seconds(`terminationGracePeriodSeconds: (\d+)`),
		}
	}
	if len(times) != 2 {
		t.Fatalf("the manifests have %v", times)
	}
	return times
}

// podCluster does what Kubernetes does with the pods of the chart.
type podCluster struct {
	*system
	times   map[string]podTimes
	running map[string][]*rollingPod // by program

	mu      sync.Mutex
	service []string // addresses of producers, as a client knows them
	failed  []string // requests with another answer than 202
	slowest time.Duration
}

// rollingPod is a process with an address of its own.
type rollingPod struct {
	*harness.Process
	program, address string
}

var listens = regexp.MustCompile(`(?m)^\[(producer|dispatcher)\]\nlisten = .*$`)

// begin starts a pod, and waits until it is ready. From then on the service has a producer.
func (c *podCluster) begin(program string) *rollingPod {
	c.T.Helper()
	text, err := os.ReadFile(c.Config)
	if err != nil {
		c.T.Fatal(err)
	}
	pod := &rollingPod{program: program, address: "http://" + redistest.FreeAddr(c.T)}
	config := filepath.Join(c.T.TempDir(), "config.toml")
	moved := listens.ReplaceAllStringFunc(string(text), func(table string) string {
		name := listens.FindStringSubmatch(table)[1]
		return fmt.Sprintf("[%s]\nlisten = %q\nshutdown_timeout = %q", name, strings.TrimPrefix(pod.address, "http://"), c.times[name].shutdown)
	})
	if err := os.WriteFile(config, []byte(moved), 0o600); err != nil {
		c.T.Fatal(err)
	}
	command := map[string]string{"dispatcher": "run", "producer": "serve"}[program]
	pod.Process = harness.Run(c.T, pod.address, program, command, "--config", config)
	if program == "producer" {
		c.mu.Lock()
		c.service = append(c.service, pod.address)
		c.mu.Unlock()
	}
	return pod
}

// roll replaces all pods of programs, of each program one after the other. As with Kubernetes, the next one is replaced while the one before still ends.
func (c *podCluster) roll(programs ...string) {
	c.T.Helper()
	var old []*rollingPod
	for _, program := range programs {
		old = append(old, c.running[program]...)
		c.running[program] = nil
	}
	faults := make(chan error, len(old))
	for _, pod := range old {
		c.running[pod.program] = append(c.running[pod.program], c.begin(pod.program))
		go func() { faults <- c.end(pod) }()
	}
	for range old {
		if err := <-faults; err != nil {
			c.T.Error(err)
		}
	}
	if c.T.Failed() {
		c.T.FailNow()
	}
}

// end ends a pod. A client goes on sending to it until a second before the sleep is over.
func (c *podCluster) end(pod *rollingPod) error {
	times := c.times[pod.program]
	began := time.Now()
	<-time.After(times.sleep - time.Second)
	c.mu.Lock()
	for i, address := range c.service {
		if address == pod.address {
			c.service = append(c.service[:i:i], c.service[i+1:]...)
			break
		}
	}
	c.mu.Unlock()
	<-time.After(time.Until(began.Add(times.sleep)))
	if err := pod.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-pod.Done:
	case <-time.After(time.Until(began.Add(times.grace))):
		pod.Kill()
		return fmt.Errorf("a pod of %s was killed after its grace period of %s", pod.program, times.grace)
	}
	c.mu.Lock()
	c.slowest = max(c.slowest, time.Since(began))
	c.mu.Unlock()
	if code := pod.Cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("a pod of %s ended with %d", pod.program, code)
	}
	return nil
}

// sendAt has a client send jobs one by one, in turn to all producers of the service, until the returned func is called.
func (c *podCluster) sendAt(rate int) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	go func() {
		defer close(done)
		var sent sync.WaitGroup
		defer sent.Wait()
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			c.mu.Lock()
			to := c.service[n%len(c.service)]
			c.mu.Unlock()
			sent.Go(func() { c.sendTo(client, to, fmt.Sprintf("rolling-%d", n)) })
		}
	}()
	return func() {
		close(stop)
		<-done
		client.CloseIdleConnections()
	}
}

func (c *podCluster) sendTo(client *http.Client, address, id string) {
	fault := ""
	response, err := client.Post(address+"/v1/buckets/"+harness.BucketName+"/jobs", "application/json", strings.NewReader(fmt.Sprintf(`{"id":%q,"payload":{}}`, id)))
	switch {
	case err != nil:
		c.History.Unknown(id)
		fault = err.Error()
	case response.StatusCode != http.StatusAccepted:
		c.History.Unknown(id)
		fault = response.Status
	default:
		c.History.Admitted(id, time.Now())
	}
	if err == nil {
		_ = response.Body.Close()
	}
	if fault != "" {
		c.mu.Lock()
		c.failed = append(c.failed, fault)
		c.mu.Unlock()
	}
}
