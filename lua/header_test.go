package lua_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tundish-io/tundish/lua"
)

type durationType = time.Duration

func fileText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name + ".lua") // of a piece, name begins with lib/
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// declared is what a header says of KEYS or ARGV.
type declared struct {
	highest int
	open    bool // KEYS[10...]
}

// fixed is how many there always are.
func (d declared) fixed() int {
	if d.open {
		return d.highest - 1
	}
	return d.highest
}

// used is what a body does with them.
type used struct {
	highest  int
	computed bool // KEYS[i]
}

// file is a script, taken apart.
type file struct {
	header, body string
	binding      string // lines that begin the body with locals only
}

func split(text string) file {
	lines := strings.SplitAfter(text, "\n")
	at := 0
	for at < len(lines) && strings.HasPrefix(lines[at], "--") {
		at++
	}
	f := file{header: strings.Join(lines[:at], "")}
	for at < len(lines) && (strings.TrimSpace(lines[at]) == "" || strings.HasPrefix(lines[at], "--#")) {
		at++
	}
	f.body = strings.Join(lines[at:], "")
	end := at
	for end < len(lines) && regexp.MustCompile(`^(local [a-zA-Z_, ]+=|  )`).MatchString(lines[end]) {
		end++
	}
	f.binding = strings.Join(lines[at:end], "")
	return f
}

// code is the text without comments and strings.
func code(text string) string {
	text = regexp.MustCompile(`'[^'\n]*'`).ReplaceAllString(text, "''")
	return regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(text, "")
}

func declaredIn(t *testing.T, header, table string) declared {
	t.Helper()
	var d declared
	for _, m := range regexp.MustCompile(`(?m)^-- `+table+`\[(\d+)(\.\.\.)?\] +\S`).FindAllStringSubmatch(header, -1) {
		n, _ := strconv.Atoi(m[1])
		if n != d.highest+1 || d.open {
			t.Errorf("%s[%d] is declared after %s[%d]", table, n, table, d.highest)
		}
		d.highest, d.open = n, m[2] != ""
	}
	return d
}

func usedIn(body, table string) used {
	var u used
	for _, m := range regexp.MustCompile(table+`\[([^\]]*)\]`).FindAllStringSubmatch(body, -1) {
		if n, err := strconv.Atoi(m[1]); err == nil {
			u.highest = max(u.highest, n)
		} else {
			u.computed = true
		}
	}
	if strings.Contains(body, "unpack("+table) || strings.Contains(body, "#"+table) || strings.Contains(body, " "+table+",") {
		u.computed = true
	}
	return u
}

var unpacked = regexp.MustCompile(`unpack\((KEYS|ARGV), (\d+), (\d+)\)`)

// spelledOut is a body in which each of several keys or arguments that are unpacked at once stands by itself.
func spelledOut(body string) string {
	return unpacked.ReplaceAllStringFunc(body, func(text string) string {
		parts := unpacked.FindStringSubmatch(text)
		first, _ := strconv.Atoi(parts[2])
		last, _ := strconv.Atoi(parts[3])
		var each []string
		for n := first; n <= last; n++ {
			each = append(each, fmt.Sprintf("%s[%d]", parts[1], n))
		}
		return strings.Join(each, "; ")
	})
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, script := range lua.All() {
		t.Run(script.Name(), func(t *testing.T) {
			f := split(fileText(t, script.Name()))
			if !strings.HasPrefix(f.header, "-- "+script.Name()+".lua: ") {
				t.Errorf("the header does not begin with the name and the purpose")
			}
			for _, part := range []string{"Returns  ", "Stores   ", "Needs    Redis "} {
				if strings.Count(f.header, "\n-- "+part) != 1 {
					t.Errorf("the header has no %q, or several", strings.TrimSpace(part))
				}
			}
			sameMoreKeys(t, f.header, script)
			body := spelledOut(code(f.body))
			for _, table := range []string{"KEYS", "ARGV"} {
				says, does := declaredIn(t, f.header, table), usedIn(body, table)
				fixed := says.fixed()
				if does.highest < fixed || does.highest > says.highest {
					t.Errorf("%s: the header declares %d, the body uses %d", table, fixed, does.highest)
				}
				if says.open != does.computed {
					t.Errorf("%s: open-ended in the header: %t, in the body: %t", table, says.open, does.computed)
				}
				for n := 1; n <= fixed; n++ {
					if !strings.Contains(body, table+"["+strconv.Itoa(n)+"]") {
						t.Errorf("%s[%d] is declared and never used", table, n)
					}
				}
			}
		})
	}
}

// moreKeys is what a header says of keys whose number depends on the call.
var moreKeys = map[lua.Keys][]string{
	lua.PurgedPlaces:        {"…:purged:<priority>:", "…:purged_later:"},
	lua.PlacesOfFlows:       {"…:q:<priority>:<flow>", "…:later:<flow>"},
	lua.PlacesAndDepartures: {"…:q:<priority>:<flow>", "…:later:<flow>", "…:departed:<flow>"},
	lua.GroupsOfFlows:       {"where flows are in groups then what group.load wants"},
	lua.GroupDepartures:     {"…:departed_group:<group>"},
	lua.GroupsAndDepartures: {"where flows are in groups then …:groups, …:group_settings", "…:due:<group>", "…:departed_group:<group>"},
	lua.TurnQueuesOfGroups:  {"…:due:<group>"},
	lua.TurnQueuesOfFlows:   {"…:due:<group>"},
	lua.KeysOfUse:           {"of jobs that used a model then …:use:<day>"},
	lua.KeysOfPool:          {"in a pool", "the pool's seven (see pool.lua)"},
	lua.KeysOfLimits:        {"<limit>"},
	lua.KeysOfFire:          {"of a fire, last …:schedules, …:schedule_due"},
	lua.KeysToMove:          {"the key to write", "the keys to remove"},
}

// sameMoreKeys holds what a header says of further KEYS to what Go adds.
func sameMoreKeys(t *testing.T, header string, script *lua.Script) {
	t.Helper()
	more := ""
	if m := regexp.MustCompile(`(?m)^-- KEYS\[\d+\.\.\.\] +(.*(?:\n--   .*)*)`).FindStringSubmatch(header); m != nil {
		more = regexp.MustCompile(`\s*\n--\s+`).ReplaceAllString(m[1], " ")
	}
	if (more == "") != (len(script.MoreKeys()) == 0) {
		t.Errorf("the header says of further KEYS %q, layout.go %v", more, script.MoreKeys())
	}
	for _, kind := range script.MoreKeys() {
		for _, text := range moreKeys[kind] {
			at := strings.Index(more, text)
			if at < 0 {
				t.Errorf("of further KEYS the header does not say %q, or not in the order of layout.go", text)
				return
			}
			more = more[at+len(text):]
		}
	}
	if len(script.FixedKeys()) != declaredIn(t, header, "KEYS").fixed() {
		t.Errorf("%d fixed KEYS were read: %q", len(script.FixedKeys()), script.FixedKeys())
	}
}

// house are rules that a text search can hold.
var house = []struct {
	rule    string
	pattern *regexp.Regexp
}{
	{"tostring loses the last digits of a time: use string.format", regexp.MustCompile(`\btostring\(`)},
	{"%g loses digits: use %d, or %.0f for what may have a fraction", regexp.MustCompile(`'[^']*%g[^']*'`)},
	{"KEYS and ARGV are bound to locals first", regexp.MustCompile(`\b(KEYS|ARGV)\[\d`)},
	{"a time is made text by concatenation", regexp.MustCompile(`\.\. *(deadline|slot|at|due|seq)\b|\b(slot|seq|due) *\.\.`)},
	{"a key is written out: it must come in KEYS", regexp.MustCompile(`redis\.p?call\('[A-Z]+', *'`)},
	{"a key is made in the script", regexp.MustCompile(`redis\.p?call\('[A-Z]+', *\w+ *\.\.`)},
	{"the second of something and those behind it have names: bind them where they are read, or use a table with fields", regexp.MustCompile(`\b(?:[a-z][a-z_]*|[A-Z]\w*[a-z]\w*)\[(?:[2-9]|\d\d+)\]`)},
	{"the server's time is that of server_time", regexp.MustCompile(`'TIME'`)},
	{"the clock is not the server's", regexp.MustCompile(`\bos\.`)},
	{"an option of one server only", regexp.MustCompile(`replicate_commands|^#!|cmsgpack|redis\.sha1hex`)},
}

// exceptions are the lines that may break a rule, with the reason.
var exceptions = map[string]string{
	`redis.call('HSET', conf, 'schema', ARGV[1], 'revision', ARGV[2], unpack(fields))`:                                           "the numbers as they came",
	`string.format('1 %s 0 0 0 %s ', epoch, claim) .. last)`:                                                                     "",
	`local seconds, micros = unpack(redis.call('TIME'))`:                                                                         "server_time itself",
	`local seconds, micros = unpack(redis.call('TIME')) -- not server_time: a call is one in fifty of all that a question costs`: "",
	`redis.call('HSET', body, id, fingerprint .. string.lower(kind) .. string.format('%d', seq) .. ' ' .. now .. ' ' .. rest)`:   "now is text there",
}

func TestHouseRules(t *testing.T) {
	t.Parallel()
	pieces, err := filepath.Glob("lib/*.lua")
	if err != nil || len(pieces) == 0 {
		t.Fatal(pieces, err)
	}
	var names []string
	for _, piece := range pieces {
		names = append(names, strings.TrimSuffix(piece, ".lua"))
	}
	for _, script := range lua.All() {
		names = append(names, script.Name())
	}
	for _, name := range names {
		f := split(fileText(t, name))
		binding, body := f.binding, f.body
		isShared := strings.HasPrefix(name, "lib/")
		if isShared {
			binding = ""
		}
		for n, line := range strings.Split(body, "\n") {
			trimmed := strings.TrimSpace(line)
			if strings.HasPrefix(trimmed, "--") {
				continue
			}
			if _, ok := exceptions[trimmed]; ok || strings.Contains(binding, line+"\n") && trimmed != "" {
				continue
			}
			for _, r := range house {
				if r.pattern.MatchString(line) {
					t.Errorf("%s.lua, line %d of the body: %s: %s", name, n+1, r.rule, trimmed)
				}
			}
		}
		if !isShared && strings.Count(body, "server_time()") > 1 {
			t.Errorf("%s.lua reads the time twice", name)
		}
	}
}

// Every script but enqueue begins with a write that Redis takes when it is out
// of memory; the others do not write, or must not (allow, enqueue, probe).
func TestScriptsBeginWithAWriteThatIsTaken(t *testing.T) {
	t.Parallel()
	first := regexp.MustCompile(`redis\.call\('([A-Z]+)'`)
	for _, script := range lua.All() {
		m := first.FindStringSubmatch(split(fileText(t, script.Name())).body)
		opens := m != nil && (m[1] == "ZREM" || m[1] == "HDEL" || m[1] == "LPOP")
		exempt := slices.Contains([]string{"enqueue", "allow", "probe", "inspect_job", "inspect_jobs", "inspect_bucket", "inspect_budgets", "inspect_pool", "inspect_results", "inspect_waiting", "flows_of", "due_schedules", "ended", "outside_turn_queue", "schedule_runs"}, script.Name())
		if opens == exempt {
			t.Errorf("%s: begins with %v", script.Name(), m)
		}
	}
}

func TestEveryFileIsAScript(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var names []string
	for _, script := range lua.All() {
		names = append(names, script.Name())
	}
	for _, f := range files {
		if !slices.Contains(names, strings.TrimSuffix(f, ".lua")) {
			t.Errorf("%s is not embedded", f)
		}
	}
	if len(files) != len(names) {
		t.Errorf("%d files for %v", len(files), names)
	}
	if !slices.IsSortedFunc(lua.All(), func(a, b *lua.Script) int { return strings.Compare(a.Name(), b.Name()) }) {
		t.Error("All is not sorted")
	}
}
