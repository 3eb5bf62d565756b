//go:build ship

package helm

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
)

const (
	helm3     = root + "/.tools/helm-v3.22.0"
	kubeScore = root + "/.tools/kube-score"
)

// Bad values are tried with both versions of helm.
func init() { helms = append(helms, helm3) }

// Both versions of helm find no fault in the chart, and make the same of it; they order objects in different ways.
func TestBothVersions(t *testing.T) {
	t.Parallel()
	for name, file := range valueFiles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var texts [][]string
			for _, helm := range []string{helm4, helm3} {
				out, err := exec.CommandContext(t.Context(), helm, "lint", "--strict", chart, "--kube-version", kubernetes, "--values", file).CombinedOutput()
				if err != nil {
					t.Errorf("%s lint: %v\n%s", helm, err, out)
				}
				text, err := template(t.Context(), helm, "queue", "--values", file)
				if err != nil {
					t.Fatal(err)
				}
				decoded(t, text)
				var parts []string
				for _, part := range documents.Split(text, -1) {
					parts = append(parts, strings.TrimSpace(part))
				}
				slices.Sort(parts)
				texts = append(texts, parts)
			}
			if !slices.Equal(texts[0], texts[1]) {
				t.Errorf("%s and %s make different objects", helm4, helm3)
			}
		})
	}
}

// kube-score finds nothing critical.
func TestScore(t *testing.T) {
	t.Parallel()
	for name, file := range valueFiles(t) {
		if name == "open.yaml" {
			continue // it has no policy of the network on purpose, which is critical
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := template(t.Context(), helm4, "queue", "--values", file)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), kubeScore, "score", "-", "--output-format", "ci", "--kubernetes-version", "v1.37")
			cmd.Stdin = strings.NewReader(text)
			out, err := cmd.CombinedOutput()
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(line, "[CRITICAL]") {
					t.Error(line)
				}
			}
			if err != nil || strings.Count(string(out), "[OK]") < 20 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The pod of `helm test` fails with a sentence where Redis has no persistence, and ends well where it has.
func TestDoctorOfRedisWithoutPersistence(t *testing.T) {
	t.Parallel()
	for appendonly, want := range map[string]string{"no": "appendonly is no: jobs that were admitted are lost when Redis restarts", "yes": "appendonly is yes"} {
		address := redis(t, appendonly)
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		all := rendered(t, "queue", "testdata/values/minimal.yaml", "--set", "redis.url=redis://"+address, "--set", "networkPolicy.redisPorts={"+port+"}")
		test := of[*core.Pod](all)[0]
		in := inside(t, &test.Spec, of[*core.ConfigMap](all)[0])
		cmd := exec.CommandContext(t.Context(), filepath.Join(programs, test.Spec.Containers[0].Command[0]), test.Spec.Containers[0].Command[1:]...)
		cmd.Dir, cmd.Env = in.folder, in.env
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), want) || (err != nil) != (appendonly == "no") {
			t.Errorf("appendonly %s: %v\n%s", appendonly, err, out)
		}
	}
}

// redis starts a server that ends with the test, and returns its address.
func redis(t *testing.T, appendonly string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	server := exec.CommandContext(t.Context(), "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--appendonly", appendonly, "--maxmemory", "100mb")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for deadline := time.After(20 * time.Second); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return address
		}
		select {
		case <-deadline:
			t.Fatal(errors.Join(errors.New("redis-server does not answer"), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// The commands of docs/kubernetes.md run one after the other, as far as they need no cluster, with what the page itself has as files.
func TestPage(t *testing.T) {
	t.Parallel()
	if err := build("producer"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root + "/docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for link, to := range map[string]string{"bin": programs, "deploy": filepath.Join(absolute, "deploy"), "helm": filepath.Join(absolute, ".tools/helm-v4.3.1")} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	ran := 0
	for i, block := range strings.Split(string(page), "```") {
		kind, text, _ := strings.Cut(block, "\n")
		if i%2 == 0 {
			continue
		}
		if file, is := strings.CutPrefix(strings.SplitN(text, "\n", 2)[0], "# "); is && filepath.Ext(file) == "."+kind && !strings.Contains(file, " ") {
			if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if kind != "" {
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
			line = strings.TrimSpace(line)
			if program, _, _ := strings.Cut(line, " "); !slices.Contains([]string{"bin/producer", "bin/dispatcher", "helm"}, program) || strings.Contains(line, "--server") ||
				strings.HasPrefix(line, "helm ") && !strings.HasPrefix(line, "helm template") {
				continue // for a cluster
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", line)
			cmd.Dir, cmd.Env = folder, append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
			ran++
		}
	}
	if ran < 3 {
		t.Errorf("the page has %d commands that run without a cluster", ran)
	}
}
