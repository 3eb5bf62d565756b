package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/opsview"
)

// examineMasters checks the settings of each master of a cluster. If all have the same
// finding, it is reported once.
func examineMasters(ctx context.Context, client *redis.ClusterClient) []Check {
	var mu sync.Mutex
	servers := map[string]*server{}
	err := client.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		s := askServer(ctx, master, true)
		mu.Lock()
		defer mu.Unlock()
		servers[master.Options().Addr] = s
		return nil
	})
	checks := []Check{examineCluster(ctx, client)}
	if err != nil || len(servers) == 0 {
		return append(checks, unknown("masters", "their addresses are unknown: %v", err))
	}
	var order []string // of names, as one server has them
	byName := map[string][]Check{}
	for _, addr := range slices.Sorted(maps.Keys(servers)) {
		for _, c := range servers[addr].checks() {
			if byName[c.Name] == nil {
				order = append(order, c.Name)
			}
			c.Text = fmt.Sprintf("%s: %s", addr, c.Text)
			byName[c.Name] = append(byName[c.Name], c)
		}
	}
	for _, name := range order {
		found := byName[name]
		if different := slices.ContainsFunc(found, func(c Check) bool { return c.Status != StatusOK }); different {
			checks = append(checks, slices.DeleteFunc(found, func(c Check) bool { return c.Status == StatusOK })...)
			continue
		}
		first := found[0]
		first.Text += fmt.Sprintf(" (%s alike)", opsview.Count(len(found), "master"))
		checks = append(checks, first)
	}
	return checks
}

// examineCluster sees whether all slots are served.
func examineCluster(ctx context.Context, client *redis.ClusterClient) Check {
	const name = "cluster"
	text, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return unknown(name, "CLUSTER INFO is refused: %s", opsview.Line(err.Error(), 120))
	}
	info := fields(text)
	if info["cluster_state"] != "ok" || info["cluster_slots_ok"] != info["cluster_slots_assigned"] {
		return Bad(name, "see CLUSTER NODES for the node that is down, or the slot that no node has", "its state is %q, and %s of %s slots are served",
			info["cluster_state"], info["cluster_slots_ok"], "16384")
	}
	if info["cluster_slots_assigned"] != "16384" {
		return Bad(name, "assign the others to a master", "only %s of 16384 slots have a master: buckets of the others cannot be used", info["cluster_slots_assigned"])
	}
	return OK(name, "all slots are served, by %s masters; each bucket is in one of them", info["cluster_size"])
}

// Examine checks how the server is set up. The server has to respond.
func Examine(ctx context.Context, client redis.UniversalClient) []Check {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return examineMasters(ctx, cluster)
	}
	return askServer(ctx, client, false).checks()
}
