package lua

import (
	"io/fs"
	"regexp"
	"strings"
)

// The keys of a script. Its header is the only list of the fixed keys: KEYS[1], KEYS[2] and so on. Which keys follow depends on the call, and is
// defined here.

// Names of fixed keys that depend on the bucket or on the call.
const (
	TurnQueue        = "turn_queue"      // due:, or due_groups if flows are in groups
	DeparturesOfFlow = "departed:<flow>" // of the only flow
)

// Keys are keys of a script whose number depends on the call.
type Keys int

// All such keys.
const (
	PurgedPlaces        Keys = iota + 1 // the five lists of the jobs that a purge took and has not removed yet
	PlacesOfFlows                       // for each flow its five places
	PlacesAndDepartures                 // for each flow its five places, and the times of its departures
	GroupsOfFlows                       // if flows are in groups: groups, group_settings, and for each group of the flows its turn queue
	GroupDepartures                     // if flows are in groups: for each group the times of its departures
	DeparturesOfParts                   // for each flow, or each group, the times of its departures
	GroupsAndDepartures                 // if flows are in groups: groups, group_settings, and for each group its turn queue and the times of its departures
	TurnQueuesOfGroups                  // for each group its turn queue
	TurnQueuesOfFlows                   // for each flow the turn queue that it is in
	KeysOfQuotas                        // of a bucket with quotas, budgets or a timetable: departures of the bucket, its leases, its charges, and departures of flows and groups; the caller adds them
	PaceOfPool                          // in a pool: the pool's conf, pace and departed; the caller adds them
	KeysOfUse                           // of jobs that used a model: the use of each day on which they were claimed; the caller adds them
	KeysOfPool                          // in a pool: the pool's seven
	KeysOfLimits                        // of limits: the caller makes them
	KeysOfFire                          // of the fire of a schedule: schedules and schedule_due; the caller adds them
	KeysToMove                          // the keys that relocate.lua writes or removes: the caller names them
)

// FixedKeys returns the names of the first KEYS of the script: the last part of a bucket's key, or a whole name.
func (s *Script) FixedKeys() []string { return s.keys() }

// MoreKeys returns the kinds of KEYS that follow them, in order.
func (s *Script) MoreKeys() []Keys { return moreKeys[s.name] }

var moreKeys = map[string][]Keys{
	"allow":              {KeysOfLimits},
	"cancel":             {PlacesOfFlows, GroupsOfFlows},
	"claim":              {PlacesAndDepartures, GroupsAndDepartures, KeysOfPool},
	"close_window":       {PlacesOfFlows, KeysOfPool},
	"control_flow":       {PlacesOfFlows, GroupsOfFlows}, // or TurnQueuesOfGroups, of a group
	"enqueue":            {KeysOfLimits, PlacesOfFlows, GroupsOfFlows, KeysOfQuotas, PaceOfPool, KeysOfFire},
	"empty_disabled":     {PlacesOfFlows, GroupsOfFlows},
	"expire":             {PurgedPlaces, PlacesOfFlows, GroupsOfFlows},
	"inspect_budgets":    {DeparturesOfParts},
	"inspect_bucket":     {PurgedPlaces, PlacesOfFlows, KeysOfPool},
	"inspect_job":        {PurgedPlaces, PlacesOfFlows, GroupsOfFlows, GroupDepartures, KeysOfPool},
	"inspect_waiting":    {PlacesAndDepartures, GroupsOfFlows, GroupDepartures},
	"outside_turn_queue": {TurnQueuesOfFlows},
	"oldest_waiting":     {PlacesOfFlows},
	"purge":              {PurgedPlaces, PlacesOfFlows, GroupsOfFlows},
	"redrive":            {PlacesOfFlows, GroupsOfFlows},
	"retry_now":          {PlacesOfFlows, GroupsOfFlows},
	"relocate":           {KeysToMove},
	"reserve":            {KeysOfPool},
	"reserve_flows":      {TurnQueuesOfGroups},
	"settle":             {PlacesOfFlows, GroupsOfFlows, KeysOfUse, KeysOfPool},
	"sift":               {PlacesOfFlows},
	"sweep":              {PurgedPlaces, PlacesOfFlows, KeysOfPool},
	"take_back":          {PurgedPlaces, PlacesOfFlows, GroupsOfFlows, KeysOfPool},
}

var (
	keyLine      = regexp.MustCompile(`^-- KEYS\[\d+\] +(\S+)(.*)`)
	continuation = regexp.MustCompile(`^--   +(.*)`)
)

// fixedKeys reads the fixed keys of a script from its header.
func fixedKeys(files fs.FS, script string) []string {
	text, _ := fs.ReadFile(files, script+".lua") // it was assembled
	var names []string
	isKey := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch key, more := keyLine.FindStringSubmatch(line), continuation.FindStringSubmatch(line); {
		case !strings.HasPrefix(line, "--"):
			return names
		case key != nil:
			names, isKey = append(names, strings.TrimPrefix(key[1], "…:")), true
			line = key[2]
		case more == nil:
			isKey = false
		}
		if isKey && names[len(names)-1] == "due:" && strings.Contains(line, "where flows are in groups …:due_groups") {
			names[len(names)-1] = TurnQueue
		}
	}
	return names
}
