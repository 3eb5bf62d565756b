package compose

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each service's command line runs, with its environment and files, and the curl that up prints, which is that of the pages with a key, is delivered to the sink.
func TestServicesRun(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), repository+"/scripts/need", "redis-server", "redis-server").Run(); err != nil {
		t.Skipf("not verified: there is no redis-server: %v", err)
	}
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, variant)
			s.start()
			s.deliver(`{"order":17}`)
			s.awaitFleet(2, 1)
			s.wantMetrics()
		})
	}
}

// deliver sends the payload by the curl that up printed, until it is taken, and waits until the sink has it.
func (s *stack) deliver(payload string) {
	s.t.Helper()
	var line string
	for said := range strings.Lines(s.said) {
		if strings.HasPrefix(said, "  curl ") {
			line = strings.Replace(said, `{"order":17}`, payload, 1)
		}
	}
	line = s.published(line)
	for late := time.Now().Add(patience); ; {
		cmd := exec.CommandContext(s.t.Context(), "sh", "-c", line)
		cmd.Dir = s.folder.root
		out, err := cmd.CombinedOutput()
		if err == nil && strings.Contains(string(out), " 202 ") {
			break
		}
		// While Redis has no master, and at a start no replica, the answer is 503.
		if err != nil || !strings.Contains(string(out), " 503 ") || time.Now().After(late) {
			s.t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	quoted, err := json.Marshal(payload)
	if err != nil {
		s.t.Fatal(err)
	}
	s.of("sink")[0].awaitText(`"payload":` + string(quoted))
}

// published puts the addresses of services in the place of the ports that they have on this machine.
func (s *stack) published(text string) string {
	for name, service := range s.project.Services {
		for _, port := range service.Ports {
			first, _, _ := strings.Cut(port.Published, "-")
			text = strings.ReplaceAll(text, fmt.Sprintf("%s:%s/", port.HostIP, first), fmt.Sprintf("%s:%d/", s.hosts[name], port.Target))
		}
	}
	return text
}

// awaitFleet waits until these programs, and no others, know each other by Redis.
func (s *stack) awaitFleet(dispatchers, producers int) {
	s.t.Helper()
	for late := time.Now().Add(patience); ; {
		ask := exec.CommandContext(s.t.Context(), filepath.Join(s.folder.programs, "dispatcher"), "fleet", "--json",
			"--server", s.published("http://127.0.0.1:8081/"), "--key", "file:"+s.folder.path("state/api.secret"))
		out, err := ask.CombinedOutput()
		if strings.Count(string(out), `"name": "dispatcher"`) == dispatchers && strings.Count(string(out), `"name": "producer"`) == producers {
			return
		}
		if time.Now().After(late) {
			s.t.Fatalf("want %d dispatchers and %d producers: %v\n%s", dispatchers, producers, err, out)
		}
	}
}

// wantMetrics asks as prometheus.yaml has Prometheus ask.
func (s *stack) wantMetrics() {
	s.t.Helper()
	for _, job := range scrapes(s.t).Jobs {
		for _, found := range job.Found {
			for _, name := range found.Names {
				key := strings.TrimSpace(s.folder.read("state/prometheus/" + filepath.Base(job.Authorization.File)))
				request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/metrics", s.hosts[name], found.Port), http.NoBody)
				if err != nil {
					s.t.Fatal(err)
				}
				request.Header.Set("Authorization", "Bearer "+key)
				answer, err := http.DefaultClient.Do(request)
				if err != nil {
					s.t.Fatal(err)
				}
				answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					s.t.Errorf("metrics of %s: %s", name, answer.Status)
				}
			}
		}
	}
}
