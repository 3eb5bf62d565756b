package config

import (
	"maps"
	"slices"
	"strings"
)

// Change is a difference between two configurations.
type Change struct {
	// Key is the changed key, such as redis.url or `buckets "webhooks".rate`. For
	// a table that was added or removed it is the table: `buckets "webhooks"`.
	Key string

	// Path is the key without names, such as buckets.rate; for a table that was added or removed, buckets.
	Path string
}

// Changes lists the differences of two configurations, in alphabetical
// order, changes of secrets included. Tables of an array are matched by their names: their order
// makes no difference. Tables without names, such as the lines of a calendar, are matched by their numbers.
func Changes(before, after *Config) []Change {
	was, is := before.byName(), after.byName()
	found := map[Change]bool{}
	for _, pair := range [][2]map[string]printed{{was, is}, {is, was}} {
		for key, p := range pair[0] {
			other, both := pair[1][key]
			change := Change{Key: key, Path: unindexed(p.path)}
			table, _, inArray := strings.Cut(key, `".`)
			table += `"`
			if _, stays := pair[1][table+".name"]; inArray && !stays {
				change = Change{Key: table, Path: change.Path[:strings.Index(change.Path, ".")]}
			} else if both && other.Value == p.Value && other.mark == p.mark {
				continue
			}
			found[change] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
}

// byName returns the settings by their keys, without the numbers of tables that have a name.
func (c *Config) byName() map[string]printed {
	list := c.printed()
	settings := make(map[string]printed, len(list))
	for _, p := range list {
		settings[byNames(p.Key)] = p
	}
	return settings
}
