package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster is a Redis Cluster: masters, each with one replica.
type Cluster struct{ Nodes []*Server }

// slots is the number of slots of a cluster.
const slots = 16384

// masters of a cluster. Fewer cannot elect one.
const masters = 3

// StartCluster starts six nodes, three masters and a replica of each, and
// returns when every node sees all of them in place and linked.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{}
	args = append([]string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", strconv.FormatInt(DownAfter.Milliseconds(), 10), "--cluster-config-file", "nodes.conf",
		"--repl-diskless-sync-delay", "0", "--repl-timeout", "5",
	}, args...)
	for range 2 * masters {
		c.Nodes = append(c.Nodes, Start(t, args...))
	}
	ids := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		ids[i] = c.must(t, node, "CLUSTER", "MYID")[0]
		if i < masters {
			c.must(t, node, "CLUSTER", "ADDSLOTSRANGE", slots*i/masters, slots*(i+1)/masters-1)
		}
		c.must(t, node, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	c.introduceNodes(t)
	awaitReady(t, "the nodes have met", func(ctx context.Context) error {
		for _, node := range c.Nodes {
			answer, err := node.ask(ctx, "CLUSTER", "NODES")
			if err != nil {
				return err
			}
			if known := strings.Count(answer[0], " connected"); known != len(c.Nodes) || strings.Contains(answer[0], "handshake") {
				return fmt.Errorf("%s knows %d", node.Addr(), known)
			}
		}
		return nil
	})
	// The slots that a node names with its first greeting are lost on nodes that did not know it.
	c.introduceNodes(t)
	for i, node := range c.Nodes[masters:] {
		c.must(t, node, "CLUSTER", "REPLICATE", ids[i])
	}
	c.AwaitReady(t)
	return c
}

// introduceNodes introduces each node to each other one. With one introduction each, it would be up to chance when gossip has spread all nodes: seconds with a
// long node timeout.
func (c *Cluster) introduceNodes(t testing.TB) {
	t.Helper()
	for _, node := range c.Nodes {
		for _, other := range c.Nodes {
			if host, port := other.hostPort(); other != node {
				c.must(t, node, "CLUSTER", "MEET", host, port)
			}
		}
	}
}

// AwaitReady waits until every node reports that the cluster is well and every master has a replica with its data, so that a master may be killed.
func (c *Cluster) AwaitReady(t testing.TB) {
	t.Helper()
	awaitReady(t, "the cluster is well", func(ctx context.Context) error {
		found := 0
		for _, node := range c.Nodes {
			answer, err := node.ask(ctx, "CLUSTER", "INFO")
			if err != nil {
				return err
			}
			if !strings.Contains(answer[0], "cluster_state:ok") || !strings.Contains(answer[0], "cluster_slots_ok:16384") {
				return fmt.Errorf("%s: %s", node.Addr(), strings.Fields(answer[0])[0])
			}
			if node.role(ctx) == roleMaster {
				found++
				info, err := node.admin().Info(ctx, "replication").Result()
				if err != nil {
					return fmt.Errorf("ask master %s for its replicas: %w", node.Addr(), err)
				}
				if !strings.Contains(info, "state=online") {
					return fmt.Errorf("master %s has no replica", node.Addr())
				}
			} else if err := node.linked(ctx); err != nil {
				return err
			}
		}
		if found != masters {
			return fmt.Errorf("%d masters", found)
		}
		return nil
	})
}

// URL returns the address of the cluster as redis+cluster://…
func (c *Cluster) URL() string { return "redis+cluster://" + strings.Join(addrs(c.Nodes), ",") }

// MasterOf returns the master that has a key's slot, when all nodes that run
// agree on it.
func (c *Cluster) MasterOf(t testing.TB, key string) *Server {
	t.Helper()
	var found *Server
	awaitReady(t, "the nodes agree on who has the key", func(ctx context.Context) error {
		found = nil
		for _, node := range c.Nodes {
			if !node.running() {
				continue
			}
			slot, err := node.slotOf(ctx, key)
			if err != nil {
				return err
			}
			owner := c.owner(ctx, node, slot)
			if owner == nil || found != nil && owner != found {
				return fmt.Errorf("%s sees it otherwise", node.Addr())
			}
			found = owner
		}
		if found.role(ctx) != roleMaster {
			return fmt.Errorf("%s is no master", found.Addr())
		}
		return nil
	})
	return found
}

// KillMaster kills the master of a key and returns it, for a Restart as a
// replica.
func (c *Cluster) KillMaster(t testing.TB, key string) *Server {
	t.Helper()
	old := c.MasterOf(t, key)
	old.Kill()
	return old
}

// AwaitFailover waits until another node has the slot of a key, and accepts writes.
func (c *Cluster) AwaitFailover(t testing.TB, key string, old *Server) *Server {
	t.Helper()
	var found *Server
	awaitReady(t, "another node has the slot", func(ctx context.Context) error {
		for _, node := range c.Nodes {
			if node == old || node.role(ctx) != roleMaster {
				continue
			}
			answer, err := node.ask(ctx, "CLUSTER", "INFO")
			slot, slotErr := node.slotOf(ctx, key)
			if errors.Join(err, slotErr) == nil && c.owner(ctx, node, slot) == node && strings.Contains(answer[0], "cluster_state:ok") {
				found = node
				return nil
			}
		}
		return errors.New("no other master has it")
	})
	return found
}

// Migration is a slot on its way from one master to another.
type Migration struct {
	c        *Cluster
	slot     int64
	from, to *Server
	key      string
}

// Migrate begins to move the slot of a key to another master: from now on it is in two places. [Migration.Step] and [Migration.End] go on.
func (c *Cluster) Migrate(t testing.TB, key string) *Migration {
	t.Helper()
	m := &Migration{c: c, from: c.MasterOf(t, key), key: key}
	for _, node := range c.Nodes {
		if node != m.from && node.role(t.Context()) == roleMaster {
			m.to = node
		}
	}
	var err error
	if m.slot, err = m.from.slotOf(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	c.must(t, m.to, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", c.must(t, m.from, "CLUSTER", "MYID")[0])
	c.must(t, m.from, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", c.must(t, m.to, "CLUSTER", "MYID")[0])
	return m
}

// Step moves at most the given number of keys and returns how many it moved.
func (m *Migration) Step(t testing.TB, keys int) int {
	t.Helper()
	names := m.c.must(t, m.from, "CLUSTER", "GETKEYSINSLOT", m.slot, keys)
	host, port := m.to.hostPort()
	for _, name := range names {
		m.c.must(t, m.from, "MIGRATE", host, port, name, 0, 5000)
	}
	return len(names)
}

// End moves the rest and gives the slot to its new master.
func (m *Migration) End(t testing.TB) {
	t.Helper()
	for m.Step(t, 100) > 0 {
	}
	id := m.c.must(t, m.to, "CLUSTER", "MYID")[0]
	m.c.must(t, m.to, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	m.c.must(t, m.from, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
}

// AwaitKnown waits until every node knows of the move.
func (m *Migration) AwaitKnown(t testing.TB) {
	t.Helper()
	awaitReady(t, "all know of the move", func(context.Context) error {
		if now := m.c.MasterOf(t, m.key); now != m.to {
			return fmt.Errorf("it is at %s", now.Addr())
		}
		return nil
	})
}

// Reshard moves the slot of a key to another master.
func (c *Cluster) Reshard(t testing.TB, key string) {
	t.Helper()
	m := c.Migrate(t, key)
	m.End(t)
	m.AwaitKnown(t)
}

// Client returns a client of the cluster that ends with the test.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs(c.Nodes), ContextTimeoutEnabled: true, ClusterStateReloadInterval: time.Second, DisableRoutingPolicies: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *Cluster) must(t testing.TB, node *Server, words ...any) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer, err := node.ask(ctx, words...)
	if err != nil {
		t.Fatalf("redistest: %v at %s: %v", words, node.Addr(), err)
	}
	return answer
}

func (s *Server) slotOf(ctx context.Context, key string) (int64, error) {
	return s.admin().ClusterKeySlot(ctx, key).Result()
}

// owner returns the node that has a slot, as a node reports it, nil if that node does not know.
func (c *Cluster) owner(ctx context.Context, node *Server, slot int64) *Server {
	ranges, err := node.admin().ClusterSlots(ctx).Result() //nolint:staticcheck // go-redis itself reads the slots
	if err != nil {
		return nil
	}
	for _, r := range ranges {
		if int64(r.Start) > slot || int64(r.End) < slot || len(r.Nodes) == 0 {
			continue
		}
		for _, other := range c.Nodes {
			if other.Addr() == r.Nodes[0].Addr {
				return other
			}
		}
	}
	return nil
}
