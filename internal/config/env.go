package config

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/tundish-io/tundish/internal/setting"
)

const (
	envPrefix = "TUNDISH_"
	envConfig = "TUNDISH_CONFIG" // names the file
	envKey    = "TUNDISH_KEY"    // the API key of a client, see [ClientKey]
	envTest   = "TUNDISH_TEST_"  // belongs to the tests
)

// linkVariable matches variables that Kubernetes sets in the containers of a namespace with a service named "tundish" or "tundish-…". They are no
// settings.
var linkVariable = regexp.MustCompile(`^TUNDISH_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=|^TUNDISH_(.*_)?PORT=\w+://`)

// Variables lists the variables that set a key, in the order of the file.
func Variables() []string {
	var names []string
	for _, key := range scalars() {
		names = append(names, variable(key.path))
		if isSecret(key.value.Type()) {
			names = append(names, variable(key.path)+"_FILE")
		}
	}
	return names
}

func variable(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// environment returns the values that variables set for keys, by path. An empty variable counts as not set. Faults name the variable.
func (l *loader) environment() map[string]any {
	values := map[string]any{}
	for _, key := range scalars() {
		name := variable(key.path)
		text, isFile := l.env[name], isSecret(key.value.Type()) && l.env[name+"_FILE"] != ""
		switch {
		case text == "" && !isFile:
			continue
		case text != "" && isFile:
			l.variables[key.path] = name
			l.fail(key.place, "", "%s_FILE is set as well: choose one", name)
			continue
		case isFile:
			name += "_FILE"
			l.variables[key.path] = name
			secret, err := l.secretFile(l.env[name], key.place)
			if err != nil {
				l.fail(key.place, "", "%v", err)
				continue
			}
			values[key.path], _ = convert(key.key, secret)
			continue
		}
		l.variables[key.path] = name
		if value, ok := l.value(key.key, scan(key.value.Type(), text), key.place); ok {
			values[key.path] = value
		}
	}
	l.unknownVariables()
	return values
}

func (l *loader) unknownVariables() {
	known := append(Variables(), envConfig)
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		switch {
		case !strings.HasPrefix(name, envPrefix), strings.HasPrefix(name, envTest):
		case name == envKey, name == envKey+"_FILE":
		case slices.Contains(known, name), linkVariable.MatchString(name + "=" + l.env[name]):
		case strings.HasPrefix(name, "TUNDISH_KEYS_"), strings.HasPrefix(name, "TUNDISH_LIMITS_"), strings.HasPrefix(name, "TUNDISH_POOLS_"),
			strings.HasPrefix(name, "TUNDISH_BUCKETS_"):
			l.faults = append(l.faults, Fault{File: "env " + name, Reason: "keys, limits, pools and buckets are set in the file only"})
		default:
			l.faults = append(l.faults, Fault{File: "env " + name, Reason: "is not a known variable" + DidYouMean(name, known)})
		}
	}
}

// scalars lists the keys outside arrays, with their defaults.
func scalars() []leaf {
	var list []leaf
	leaves(setting.Keys(reflect.TypeFor[settings]()), reflect.ValueOf(defaultSettings()), place{}, "", nil, func(f leaf) { list = append(list, f) })
	return list
}
