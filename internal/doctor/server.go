package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/internal/opsview"
)

// server holds what Redis reports about itself. Managed servers forbid CONFIG, and the embedded store supports little of INFO: each missing value has a
// reason.
type server struct {
	info      map[string]string
	config    map[string]string
	infoErr   error
	configErr error
	followed  bool // as a node of a cluster
	rights    rights
}

func (s *server) checks() []Check {
	return []Check{s.version(), s.mode(), s.persistence(), s.eviction(), s.memory(), s.replicas(), s.rightsOfUser()}
}

func askServer(ctx context.Context, client redis.UniversalClient, inCluster bool) *server {
	s := &server{config: map[string]string{}, followed: inCluster, rights: askRights(ctx, client, inCluster)}
	text, err := client.Info(ctx).Result()
	s.info, s.infoErr = fields(text), err
	for _, key := range []string{"appendfsync", "min-replicas-to-write"} {
		values, err := client.ConfigGet(ctx, key).Result()
		if err != nil {
			s.configErr = err
			break
		}
		s.config[key] = values[key]
	}
	return s
}

// set returns how to change settings, given in the form of CONFIG SET. A managed server has no CONFIG.
func (s *server) set(settings string) string {
	if s.configErr != nil {
		return "set " + settings + " where the settings of this Redis are, such as redis.conf or the parameters of the service: CONFIG is refused"
	}
	return "CONFIG SET " + settings + ", and the same in redis.conf"
}

// missingField returns the finding for a field that INFO lacks.
func (s *server) missingField(name, field string) Check {
	if s.infoErr != nil {
		return unknown(name, "INFO is refused: %s", opsview.Line(s.infoErr.Error(), 120))
	}
	return unknown(name, "INFO has no %s here", field)
}

func (s *server) version() Check {
	const name = "version"
	if s.info["arch_bits"] == "32" {
		return Bad(name, "use a Redis that is built for 64 bits", "it is built for 32 bits, and the scripts would lose digits of a time: they refuse to set up anything")
	}
	if version := s.info["valkey_version"]; version != "" {
		return OK(name, "Valkey %s", version)
	}
	version := s.info["redis_version"]
	if version == "" {
		return s.missingField(name, "redis_version")
	}
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < 7 {
		return Bad(name, "upgrade to Redis 7.0 or newer, or to Valkey", "Redis %s is too old: the scripts need 7.0", version)
	}
	return OK(name, "Redis %s", version)
}

func (s *server) mode() Check {
	const name = "mode"
	switch {
	case s.info["role"] == "slave":
		return Bad(name, "set redis.url to the master", "this is a replica: it refuses writes")
	case s.info["cluster_enabled"] == "1" && !s.followed:
		return Bad(name, `set redis.url to "redis+cluster://" and some of the nodes`, "this is a node of a cluster, and redis.url names a single server: buckets of other nodes cannot be used")
	case s.info["loading"] == "1":
		return Warn(name, "wait until it is done", "it loads its data, and refuses commands until then")
	case s.info["role"] == "":
		return s.missingField(name, "role")
	}
	if s.followed {
		return OK(name, "a master of a cluster, which takes writes")
	}
	return OK(name, "a single server that takes writes")
}

func (s *server) persistence() Check {
	const name = "persistence"
	switch {
	case s.info["aof_enabled"] == "":
		return s.missingField(name, "aof_enabled")
	case s.info["aof_enabled"] == "0":
		return Bad(name, s.set("appendonly yes"),
			"appendonly is no: jobs that were admitted are lost when Redis restarts; snapshots alone do not help")
	case s.info["aof_last_write_status"] == "err":
		return Bad(name, "look at the disk and the log of Redis", "the last write of the append-only file failed")
	case s.configErr != nil:
		return OK(name, "appendonly is yes; appendfsync is unknown, because CONFIG is refused: %s", opsview.Line(s.configErr.Error(), 120))
	case s.config["appendfsync"] == "no":
		return Warn(name, s.set("appendfsync everysec"), "appendonly is yes, appendfsync no: a power loss may lose half a minute")
	case s.config["appendfsync"] == "always":
		return OK(name, "appendonly is yes, appendfsync always: every acknowledged write is on disk")
	}
	return OK(name, "appendonly is yes, appendfsync %s: a crash of Redis loses next to nothing, a power loss up to a second or two", s.config["appendfsync"])
}

func (s *server) eviction() Check {
	const name = "eviction"
	switch policy := s.info["maxmemory_policy"]; {
	case policy == "":
		return s.missingField(name, "maxmemory_policy")
	case policy == "noeviction":
		return OK(name, "maxmemory-policy is noeviction")
	case strings.HasPrefix(policy, "volatile-"): // jobs, dead letters and settings have no expiry
		return Bad(name, s.set("maxmemory-policy noeviction"),
			"maxmemory-policy is %s: a full Redis keeps jobs, and deletes what expires: the counts of limits, quotas and budgets, which are passed then, "+
				"learned estimates, the use of models, and the audit", policy)
	default:
		return Bad(name, s.set("maxmemory-policy noeviction"), "maxmemory-policy is %s: a full Redis deletes jobs, and all else", policy)
	}
}

func (s *server) memory() Check {
	const name = "memory"
	used, err1 := strconv.ParseFloat(s.info["used_memory"], 64)
	most, err2 := strconv.ParseFloat(s.info["maxmemory"], 64)
	switch {
	case err1 != nil || err2 != nil:
		return s.missingField(name, "used_memory and maxmemory")
	case most == 0:
		return Warn(name, s.set("maxmemory <bytes>")+", with the memory that the machine can spare",
			"%s in use, and maxmemory is not set: instead of refusing jobs, a full Redis may be killed", size(used))
	case used >= most:
		return Bad(name, s.set("maxmemory <bytes>")+"; or free memory: a closed bucket sends with `bucket drain`, and `bucket purge` loses jobs",
			"%s of %s in use: Redis is out of memory and stores no jobs", size(used), size(most))
	case used > 0.8*most:
		return Warn(name, "raise maxmemory, or lower the capacity of the buckets",
			"%s of %s in use (%.0f %%): when it is full, jobs are refused", size(used), size(most), 100*used/most)
	}
	return OK(name, "%s of %s in use (%.0f %%)", size(used), size(most), 100*used/most)
}

func (s *server) replicas() Check {
	const name = "replicas"
	n, err := strconv.Atoi(s.info["connected_slaves"])
	switch {
	case err != nil:
		return s.missingField(name, "connected_slaves")
	case n == 0 && s.followed:
		return Warn(name, "give it one: CLUSTER REPLICATE", "none: when it dies, no replica takes its buckets over")
	case n == 0:
		return OK(name, "none: jobs are as safe as this one server")
	case s.configErr != nil:
		return OK(name, "%d; min-replicas-to-write is unknown, because CONFIG is refused: %s", n, opsview.Line(s.configErr.Error(), 120))
	case s.config["min-replicas-to-write"] == "0":
		return Warn(name, s.set("min-replicas-to-write 1 min-replicas-max-lag 1"),
			"%d, and min-replicas-to-write is 0: a master that is cut off goes on admitting jobs, which a failover then loses", n)
	}
	return OK(name, "%d, of which %s must be near for a write", n, s.config["min-replicas-to-write"])
}

// size is a number of bytes for people.
func size(n float64) string {
	unit := 0
	for n >= 1024 && unit < len(units)-1 {
		n /= 1024
		unit++
	}
	if n >= 100 {
		return fmt.Sprintf("%.0f %s", n, units[unit])
	}
	return fmt.Sprintf("%.3g %s", n, units[unit])
}

var units = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// fields reads lines of "name:value".
func fields(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[key] = value
		}
	}
	return values
}
