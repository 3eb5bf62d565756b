package helm

import (
	"encoding/json"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Both programs accept the configuration that a pod has, and probes, ports, grace and memory follow from it.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	for name, file := range valueFiles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := rendered(t, "queue", file)
			config := of[*core.ConfigMap](all)
			deployments := of[*apps.Deployment](all)
			if len(config) != 1 || len(deployments) != 2 {
				t.Fatalf("%d configurations, %d deployments", len(config), len(deployments))
			}
			for _, d := range deployments {
				spec := &d.Spec.Template.Spec
				in := inside(t, spec, config[0])
				in.run("config", "check")
				settings := in.settings()
				holds(t, all, spec, settings)
			}
		})
	}
}

// pod has the environment and the files of a pod's container, in a folder instead of the root.
type pod struct {
	t      *testing.T
	env    []string
	folder string
}

func inside(t *testing.T, spec *core.PodSpec, config *core.ConfigMap) *pod {
	t.Helper()
	container := spec.Containers[0]
	p := &pod{t: t, folder: t.TempDir()}
	toml := config.Data["config.toml"]
	moved := func(text string) string {
		for _, mount := range container.VolumeMounts {
			text = strings.ReplaceAll(text, mount.MountPath+"/", filepath.Join(p.folder, mount.MountPath)+"/")
		}
		return text
	}
	named := toml
	for _, variable := range container.Env {
		value := variable.Value
		if variable.ValueFrom != nil {
			value = "https://hooks.example.com/of-a-secret"
		}
		named += "\n" + value
		p.env = append(p.env, variable.Name+"="+moved(value))
	}
	for _, mount := range container.VolumeMounts {
		for _, path := range regexp.MustCompile(regexp.QuoteMeta(mount.MountPath)+`/[-._\w]+`).FindAllString(named, -1) {
			p.write(path, map[string]string{"REDIS_URL": "rediss://tundish:secret@redis.example.com:6379/0", "signing": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}[filepath.Base(path)])
		}
	}
	p.write(container.VolumeMounts[0].MountPath+"/config.toml", moved(toml))
	return p
}

func (p *pod) write(path, text string) {
	p.t.Helper()
	path = filepath.Join(p.folder, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if text == "" {
		text = "secret"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// run runs a command of dispatcher. Both programs read their configuration by the same code, and producer has no such commands.
func (p *pod) run(args ...string) []byte {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(programs, "dispatcher"), args...)
	cmd.Dir, cmd.Env = p.folder, p.env
	out, err := cmd.Output()
	if err != nil {
		said := ""
		if exit, is := err.(*exec.ExitError); is { //nolint:errorlint // Output returns it as it is
			said = string(exit.Stderr)
		}
		p.t.Fatalf("dispatcher %v: %v\n%s%s", args, err, out, said)
	}
	return out
}

// settings are the values in force, as the program prints them.
func (p *pod) settings() map[string]string {
	p.t.Helper()
	var list []struct{ Key, Value string }
	if err := json.Unmarshal(p.run("config", "print", "--json"), &list); err != nil {
		p.t.Fatal(err)
	}
	values := map[string]string{}
	for _, s := range list {
		values[s.Key] = strings.Trim(s.Value, `"`)
	}
	return values
}

// holds compares a pod with the settings of its program.
func holds(t *testing.T, all objects, spec *core.PodSpec, settings map[string]string) {
	t.Helper()
	container := spec.Containers[0]
	name := container.Name
	host, port, err := net.SplitHostPort(settings[name+".listen"])
	if err != nil || host != "" {
		t.Errorf("%s listens at %q: %v", name, settings[name+".listen"], err)
	}
	if got := container.Ports[0]; strconv.Itoa(int(got.ContainerPort)) != port || got.Name != "http" {
		t.Errorf("%s has the port %+v, and listens at %s", name, got, port)
	}
	for path, probe := range map[string]*core.Probe{"/livez": container.LivenessProbe, "/readyz": container.ReadinessProbe, "/livez startup": container.StartupProbe} {
		if want, _, _ := strings.Cut(path, " "); probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != want || probe.HTTPGet.Port != intstr.FromString("http") {
			t.Errorf("%s: probe of %s: %+v", name, path, probe)
		}
	}
	for _, service := range of[*core.Service](all) {
		if strings.HasSuffix(service.Name, "-"+name) && (service.Spec.Ports[0].TargetPort != intstr.FromString("http") || strconv.Itoa(int(service.Spec.Ports[0].Port)) != port) {
			t.Errorf("%s: its service has %+v", name, service.Spec.Ports)
		}
	}
	connects(t, all, name, settings["redis.url"])
	stop, err := time.ParseDuration(settings[name+".shutdown_timeout"])
	sleep := container.Lifecycle.PreStop.Sleep.Seconds
	if want := sleep + int64(stop.Seconds()) + 5; err != nil || sleep < 1 || *spec.TerminationGracePeriodSeconds != want {
		t.Errorf("%s: a grace of %d s, want %d s: a sleep of %d s, %s and 5 s; %v", name, *spec.TerminationGracePeriodSeconds, want, sleep, stop, err)
	}
	if url := settings["redis.url"]; !strings.HasPrefix(url, "redis") {
		t.Errorf("%s: redis.url is %q", name, url)
	}
	limits := container.Resources.Limits
	if limits.Cpu().IsZero() || limits.Memory().IsZero() || container.Resources.Requests.Memory().IsZero() {
		t.Errorf("%s: %+v", name, container.Resources)
	}
	if bodies := settings["producer.body_memory"]; name == "producer" && bodies != "128MiB" {
		t.Errorf("producer.body_memory is %s, and the default of the chart's checkMemory is 128MiB", bodies)
	}
	if got, limit := memoryLimit(t, container), float64(limits.Memory().Value()); got < .85*limit || got > .95*limit {
		t.Errorf("%s: GOMEMLIMIT is %g of a limit of %g bytes", name, got, limit)
	}
}

// connects wants the policy of the network of a program, if there is one, to let requests in at its port, and the program out to all ports of Redis.
func connects(t *testing.T, all objects, name, redisURL string) {
	t.Helper()
	for _, policy := range of[*networking.NetworkPolicy](all) {
		if !strings.HasSuffix(policy.Name, "-"+name) {
			continue
		}
		if ports := policy.Spec.Ingress[0].Ports; len(ports) != 1 || *ports[0].Port != intstr.FromString("http") {
			t.Errorf("%s lets requests in at %v", policy.Name, ports)
		}
		open := map[string]bool{}
		for _, rule := range policy.Spec.Egress {
			for _, port := range rule.Ports {
				if len(rule.To) == 0 {
					open[port.Port.String()] = true
				}
			}
		}
		wanted := regexp.MustCompile(`:(\d+)`).FindAllStringSubmatch(redisURL, -1)
		if len(wanted) == 0 || !open["53"] {
			t.Errorf("%s: Redis at %q, open are %v", policy.Name, redisURL, open)
		}
		for _, port := range wanted {
			if !open[port[1]] {
				t.Errorf("%s lets no pod connect to port %s of Redis: open are %v", policy.Name, port[1], open)
			}
		}
	}
}

// memoryLimit is GOMEMLIMIT as Go itself understands it.
func memoryLimit(t *testing.T, container core.Container) float64 {
	t.Helper()
	for _, variable := range container.Env {
		if number, is := strings.CutSuffix(variable.Value, "MiB"); is && variable.Name == "GOMEMLIMIT" {
			n, err := strconv.ParseFloat(number, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n * (1 << 20)
		}
	}
	t.Errorf("%s has no GOMEMLIMIT in MiB; this test's own is %d", container.Name, debug.SetMemoryLimit(-1))
	return math.NaN()
}

// A change of the configuration changes the ConfigMap alone, so pods go on and reload it.
func TestConfigurationRestartsNothing(t *testing.T) {
	t.Parallel()
	changed := filepath.Join(t.TempDir(), "changed.toml")
	text := of[*core.ConfigMap](rendered(t, "queue", manifestValues))[0].Data["config.toml"]
	faster := strings.Replace(text, "50/s", "60/s", 1)
	if err := os.WriteFile(changed, []byte(faster), 0o600); err != nil || faster == text {
		t.Fatal(err, text)
	}
	before, after := rendered(t, "queue", manifestValues), rendered(t, "queue", manifestValues, "--set-file", "config="+changed)
	for i := range before {
		was, _ := json.Marshal(before[i])
		is, _ := json.Marshal(after[i])
		_, config := before[i].(*core.ConfigMap)
		if (string(was) != string(is)) != config {
			t.Errorf("%T %s: changed: %v", before[i], before[i].GetName(), !config)
		}
	}
}
