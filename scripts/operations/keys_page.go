package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

const keysPage = "docs/redis-keys.md"

const keysHead = `# Keys in Redis

<!-- Made by go run ./scripts/operations, of the headers of lua/*.lua and lua/lib/*.lua. -->

This page lists every key, with its type and what it holds. It is generated from the headers of the [scripts](../lua), which also describe the texts
inside the keys. [ARCHITECTURE.md](../ARCHITECTURE.md) has the rules. The last column names the scripts that are given the key, or their number.

Scripts publish on two kinds of channels: ` + "`tundish:wake`" + ` wakes dispatchers, and ` + "`tundish:answers:<id>`" + ` a process that waits for results.
`

// keySections are the sections of the page, in order. A key belongs to the one with the longest prefix that it has.
var keySections = []struct{ prefix, title, text string }{
	{"…:", "A bucket", "The keys begin with `tundish:{<tag>}:b:<bucket>:`. The tag is the name of the bucket's pool, or else of the bucket itself.\n" +
		"The bucket is named by its first name, also after it was renamed."},
	{"…:p:<pool>:", "A pool", "The keys begin with `tundish:{<pool>}:p:<pool>:`. They share the tag with the keys of all buckets in the pool."},
	{"tundish:{l:", "A limit outside a bucket", "All keys of the limit share its tag."},
	{"tundish:{fleet}:", "The fleet", "All processes on one Redis share these keys."},
	{"tundish:", "Without a tag", "The scripts of these keys touch no other key. In the index, a later name of a renamed bucket has `=` and the first name."},
}

// keysOfRedis is the page of all keys.
func keysOfRedis() ([]byte, error) {
	keys, err := readKeys()
	if err != nil {
		return nil, err
	}
	rows := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		prefix := ""
		for _, section := range keySections {
			if strings.HasPrefix(name, section.prefix) && len(section.prefix) > len(prefix) {
				prefix = section.prefix
			}
		}
		k := keys[name]
		rows[prefix] = append(rows[prefix], fmt.Sprintf("| `%s` | %s | %s | %s |\n", strings.TrimPrefix(name, prefixShown(prefix)), k.kind, meaning(strings.TrimSuffix(k.holds(), ":")), names(k.scripts)))
	}
	var text strings.Builder
	text.WriteString(keysHead)
	for _, section := range keySections {
		fmt.Fprintf(&text, "\n## %s\n\n%s\n\n| key | type | holds | scripts |\n|---|---|---|---|\n%s", section.title, section.text, strings.Join(rows[section.prefix], ""))
	}
	return []byte(text.String()), nil
}

// prefixShown is the part of a prefix that the text of its section says once. Names without … are whole.
func prefixShown(prefix string) string {
	if strings.HasPrefix(prefix, "…") {
		return prefix
	}
	return ""
}

var (
	inPageLanguage = strings.NewReplacer("<", `\<`, "|", `\|`, "*", `\*`, "_", `\_`, " -> ", " → ")
	luaFile        = regexp.MustCompile(`\b(?:lib/)?([\w\\]+\.lua)\b`)
)

// meaning is a description in Markdown. Names of scripts and pieces become links.
func meaning(text string) string {
	return luaFile.ReplaceAllStringFunc(inPageLanguage.Replace(text), func(name string) string {
		file := strings.TrimPrefix(strings.ReplaceAll(name, `\`, ""), "lib/")
		for _, folder := range [...]string{"lua/lib/", "lua/"} {
			if _, err := os.Stat(folder + file); err == nil {
				return "[" + file + "](../" + folder + file + ")"
			}
		}
		return name
	})
}

// names lists few scripts, and counts many.
func names(scripts []string) string {
	if len(scripts) > 4 {
		return fmt.Sprintf("%d scripts", len(scripts))
	}
	slices.Sort(scripts)
	return strings.Join(scripts, ", ")
}
