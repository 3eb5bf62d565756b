//go:build ship

package compose

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The variants are what they are for: the master of the bucket dies, the next job is delivered all the same, and the node comes back.
func TestMasterDies(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), repository+"/scripts/need", "redis-server", "redis-server").Run(); err != nil {
		t.Skipf("not verified: there is no redis-server: %v", err)
	}
	for _, variant := range []string{"sentinel", "cluster"} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, variant)
			s.start()
			s.deliver(`{"order":17}`)
			master := s.master()
			master.kill()
			s.deliver(`{"order":18}`)
			back := s.process(master.service, 0)
			s.running = append(s.running, back)
			back.awaitReplica()
			s.deliver(`{"order":19}`)
		})
	}
}

// master is the master that has the bucket.
func (s *stack) master() *process {
	s.t.Helper()
	for _, p := range s.running {
		if strings.HasPrefix(p.service.Name, "redis") && p.asOperator("info replication | grep role:master && redis-cli --scan --pattern 'tundish:{webhooks}:*' | grep .") {
			return p
		}
	}
	s.t.Fatal("no master has the bucket")
	return nil
}

// awaitReplica waits until a server that came back has learned that another one is the master now.
func (p *process) awaitReplica() {
	p.t.Helper()
	for late := time.Now().Add(patience); !p.asOperator("info replication | grep master_link_status:up"); {
		if time.Now().After(late) {
			p.t.Fatalf("%s does not follow the new master", p.name)
		}
	}
}
