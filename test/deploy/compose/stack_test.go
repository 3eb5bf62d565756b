package compose

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

// stack runs the services of a project as processes of this machine. Each has the command, the environment, the mounts and the check of its service. What a
// container gives it is made up for: its address is one of this machine's loopback network, and its paths are below a folder of its own.
type stack struct {
	t       *testing.T
	folder  *folder
	project *types.Project
	said    string // by up
	network string // the first three bytes of addresses, as 127.80.3.
	hosts   map[string]string
	running []*process
}

// subnet is that of compose.yaml, as addresses begin.
const subnet = "172.30.90."

func newStack(t *testing.T, variant string) *stack {
	t.Helper()
	f := newFolder(t)
	said, err := f.up(strings.Fields(variant)...)
	if err != nil {
		t.Fatal(err)
	}
	project, err := f.project()
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{t: t, folder: f, project: project, said: said, hosts: map[string]string{}}
	s.network = fmt.Sprintf("127.%d.%d.", 64+rand.IntN(128), rand.IntN(256))
	t.Cleanup(s.stop)
	names := project.ServiceNames()
	slices.Sort(names)
	for i, name := range names {
		service := project.Services[name]
		if service.Networks["tundish"] != nil && service.Networks["tundish"].Ipv4Address != "" {
			s.hosts[name] = s.local(service.Networks["tundish"].Ipv4Address)
		} else {
			const dynamic, most = 128, 4 // addresses, each with room for replicas
			s.hosts[name] = fmt.Sprint(s.network, dynamic+i*most)
		}
	}
	return s
}

// local is an address of the network of Compose on this machine.
func (s *stack) local(address string) string {
	after, found := strings.CutPrefix(address, subnet)
	if !found {
		s.t.Fatalf("%s is not in the network of compose.yaml", address)
	}
	return s.network + after
}

// start starts all services in the order of what they depend on, and waits as they do.
func (s *stack) start() {
	s.t.Helper()
	started := map[string]bool{}
	for len(started) < len(s.project.Services) {
		before := len(started)
		for name, service := range s.project.Services {
			if started[name] || slices.ContainsFunc(service.GetDependencies(), func(other string) bool { return !started[other] }) {
				continue
			}
			for other, depends := range service.DependsOn {
				s.await(other, depends.Condition)
			}
			replicas := 1
			if service.Deploy != nil && service.Deploy.Replicas != nil {
				replicas = *service.Deploy.Replicas
			}
			for replica := range replicas {
				s.running = append(s.running, s.process(&service, replica))
			}
			started[name] = true
		}
		if len(started) == before {
			s.t.Fatalf("what starts first? %v", s.project.ServiceNames())
		}
	}
	// So does up: docker compose up --wait.
	for name, service := range s.project.Services {
		if service.HealthCheck != nil {
			s.await(name, types.ServiceConditionHealthy)
		}
	}
}

// stop stops all in the order of Compose: first what depends on others.
func (s *stack) stop() {
	for _, p := range slices.Backward(s.running) {
		p.stop()
	}
	for _, p := range s.running {
		if s.t.Failed() {
			s.t.Logf("%s: %v\n%s", p.name, p.err, p.said())
		}
	}
}

func (s *stack) await(service, condition string) {
	s.t.Helper()
	for _, p := range s.of(service) {
		switch condition {
		case types.ServiceConditionHealthy:
			p.awaitHealthy()
		case types.ServiceConditionCompletedSuccessfully:
			p.awaitEnd()
		default:
			s.t.Fatalf("a service that is needed %s: say %s", condition, types.ServiceConditionHealthy)
		}
	}
}

// of are the processes of a service.
func (s *stack) of(service string) (list []*process) {
	for _, p := range s.running {
		if p.service.Name == service {
			list = append(list, p)
		}
	}
	return list
}

// process starts a replica of a service.
func (s *stack) process(service *types.ServiceConfig, replica int) *process {
	s.t.Helper()
	p := &process{t: s.t, service: service, wrote: make(chan struct{}, 1), ended: make(chan struct{})}
	p.name = fmt.Sprint(service.Name, "/", replica)
	p.root = filepath.Join(s.folder.root, "containers", p.name)
	base, last := s.hosts[service.Name], 0
	if _, err := fmt.Sscanf(base, s.network+"%d", &last); err != nil {
		s.t.Fatal(base, err)
	}
	p.address = fmt.Sprint(s.network, last+replica)
	p.inside = s.inside(p)
	for _, v := range service.Volumes {
		at := filepath.Join(p.root, v.Target)
		if v.Type == types.VolumeTypeVolume {
			if err := os.MkdirAll(at, 0o755); err != nil {
				s.t.Fatal(err)
			}
			continue
		}
		if !v.ReadOnly {
			s.t.Errorf("%s may write to %s", service.Name, v.Source)
		}
		p.mount(v.Source, at)
	}
	for name, value := range service.Environment {
		if value != nil {
			p.env = append(p.env, name+"="+p.inside(*value))
		}
	}
	p.env = append(p.env, "PATH="+s.commands(p)+":"+s.folder.programs+":/usr/bin:/bin")
	p.start()
	return p
}

// inside returns what stands for a text in a process: for addresses of the network, for names of services before a port, for all addresses and the loopback of
// the container, and for the paths of its mounts.
func (s *stack) inside(p *process) func(text string) string {
	pairs := []string{subnet, s.network, "0.0.0.0", p.address, "127.0.0.1", p.address}
	for _, v := range p.service.Volumes {
		pairs = append(pairs, v.Target, filepath.Join(p.root, v.Target))
	}
	plain := strings.NewReplacer(pairs...)
	host := regexp.MustCompile(`([@/,"]|^)([a-z][a-z0-9-]*):([0-9]+)`)
	return func(text string) string {
		text = host.ReplaceAllStringFunc(text, func(found string) string {
			part := host.FindStringSubmatch(found)
			address, known := s.hosts[part[2]]
			if !known {
				return found
			}
			return part[1] + address + ":" + part[3]
		})
		return plain.Replace(text)
	}
}

// commands is a folder with the programs of Redis, which listen and ask at the address of the container, as there they do unasked.
func (s *stack) commands(p *process) string {
	folder := filepath.Join(p.root, "commands")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		s.t.Fatal(err)
	}
	listen := `"$@" --bind ` + p.address + ` --bind-source-addr ` + p.address
	for name, args := range map[string]string{"redis-server": listen, "redis-cli": "-h " + p.address + ` "$@"`} {
		script := "#!/bin/sh\nPATH=/usr/local/bin:/usr/bin:/bin exec " + name + " " + args + "\n"
		if err := os.WriteFile(filepath.Join(folder, name), []byte(script), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	return folder
}
