package lua

import "strings"

// A layout says what a script is given: its KEYS and its ARGV. It is the only description in Go: callers make keys
// from it, and the header of each script is tested against it.
type layout struct {
	keys []string // the fixed keys, by the last part of their names
	then []Keys   // what follows them, in this order
	args []string // the fixed arguments, by the names that the header gives them
	more bool     // whether arguments follow them, which the header explains
}

// Names of fixed keys that depend on the bucket or on the call.
const (
	Calendar         = "calendar"        // due:, or due_groups where flows are in groups
	DeparturesOfFlow = "departed:<flow>" // of the only flow
	AnswerOfJob      = "answer:<id>"     // of the only job
)

// Keys are keys of a script whose number depends on the call.
type Keys int

// All such keys.
const (
	PurgedPlaces        Keys = iota + 1 // the five places of what a purge took, and has not removed yet
	PlacesOfFlows                       // for each flow its five places
	PlacesAndDepartures                 // for each flow its five places, and the times of its departures
	GroupsOfFlows                       // where flows are in groups: groups, group_settings, and for each group of the flows its calendar
	GroupDepartures                     // where flows are in groups: for each group the times of its departures
	GroupsAndDepartures                 // where flows are in groups: groups, group_settings, and for each group its calendar and the times of its departures
	CalendarsOfGroups                   // for each group its calendar
	CalendarsOfFlows                    // for each flow the calendar on which it stands
	KeysOfQuotas                        // of a bucket with quotas or a timetable: departures of the bucket, its leases, and departures of flows and groups; the caller adds them
	PaceOfPool                          // in a pool: the pool's conf, pace and departed; the caller adds them
	KeysOfPool                          // in a pool: the pool's seven
	KeysOfLimits                        // of limits: the caller makes them
	KeysOfFire                          // of the fire of a schedule: schedules and schedule_due; the caller adds them
	KeyOfNames                          // of jobs with former ids: seen_window; the caller adds it
	KeysToMove                          // what relocate.lua writes or removes: the caller names them
)

// FixedKeys are the names of the first KEYS of the script: the last part of a bucket's key, or a whole name.
func (s *Script) FixedKeys() []string { return s.layout.keys }

// MoreKeys are what follows them.
func (s *Script) MoreKeys() []Keys { return s.layout.then }

// FixedArgs are the names of the first ARGV of the script, and whether others follow them.
func (s *Script) FixedArgs() (names []string, more bool) { return s.layout.args, s.layout.more }

// layouts are those of all scripts, by name.
var layouts = map[string]layout{
	"advance_schedule": {
		keys: names("schedules schedule_due"),
		args: names("fire blocked pause"),
	},
	"allow": {
		keys: names("tundish:{l:<limit>}:conf"),
		then: []Keys{KeysOfLimits},
		args: names("limits_rev now algorithm max life setting_count"),
		more: true,
	},
	"assign": {
		keys: names("tundish:buckets"),
		args: names("bucket tag_read generation_read tag generation"),
	},
	"cancel": {
		keys: names("body meta settings count leases dead seen seen_window seen_minute flows flow_settings attempts expiries"),
		then: []Keys{PlacesOfFlows, GroupsOfFlows},
		args: names("id state levels flow"),
	},
	"claim": {
		keys: names("body meta settings pace leases claims dead count departed flows flow_settings calendar idle attempts outbox outbox_texts callbacks callback_texts riders callback_counts"),
		then: []Keys{PlacesAndDepartures, GroupsAndDepartures, KeysOfPool},
		args: names("dispatcher claim want horizon lease lead last_chance may_go expired_last levels member channel bucket most_bytes stepped steps flow_count"),
		more: true,
	},
	"configure": {
		keys: names("settings body dead conf_aside conf leases"),
		args: names("schema revision channel bucket owns by started"),
		more: true,
	},
	"control": {
		keys: names("settings pace count outbox outbox_texts"), // of a pool the first two
		args: names("channel bucket action by"),
		more: true,
	},
	"control_drain": {
		keys: names("settings pace"),
		args: names("channel bucket action by id rate_count rate_per most until_empty"),
	},
	"control_flow": {
		keys: names("settings pace flows flow_settings calendar disabled count outbox outbox_texts"),
		then: []Keys{PlacesOfFlows, GroupsOfFlows}, // or CalendarsOfGroups, of a group
		args: names("channel bucket name action kind"),
		more: true,
	},
	"control_schedule": {
		keys: names("settings schedules schedule_due"),
		args: names("channel message name action by text most"),
	},
	"define_schedules": {
		keys: names("settings schedules schedule_due"),
		args: names("revision generation channel message started keep"),
		more: true,
	},
	"disabled_deaths": {
		keys: names("body meta pace count dead disabled_deaths"),
		args: names("flow levels cause at_most most_bytes"),
	},
	"due_schedules": {
		keys: names("schedules schedule_due"),
		args: names("at_most"),
	},
	"enqueue": {
		keys: names("body meta settings pace count dead seen flows calendar flow_settings idle outbox outbox_texts callback_texts callback_counts expiries flow_makers"),
		then: []Keys{KeysOfLimits, PlacesOfFlows, GroupsOfFlows, KeysOfQuotas, PaceOfPool, KeysOfFire, KeyOfNames},
		args: names("channel bucket limits_rev limit_count job_count alike levels flow_count"),
		more: true,
	},
	"empty_disabled": {
		keys: names("body meta settings count dead flows flow_settings attempts disabled outbox outbox_texts callbacks callback_texts callback_counts"),
		then: []Keys{PlacesOfFlows, GroupsOfFlows},
		args: names("levels flow at_most most_bytes again cause"),
	},
	"ended": {
		keys: names("body meta"),
		more: true,
	},
	"expire": {
		keys: names("body meta settings count leases dead flows flow_settings attempts outbox outbox_texts callbacks callback_texts callback_counts expiries"),
		then: []Keys{PurgedPlaces, PlacesOfFlows, GroupsOfFlows},
		args: names("levels again most_bytes expired_last flow_count"),
		more: true,
	},
	"extend": {
		keys: names("meta leases claims"),
		args: names("lease dispatcher claim"),
		more: true,
	},
	"flows_of": {
		keys: names("body"),
		args: names("most_bytes levels"),
		more: true,
	},
	"inspect_bucket": {
		keys: names("body settings pace count leases dead seen flows due: groups due_groups disabled callbacks callback_texts riders departed"),
		then: []Keys{PurgedPlaces, PlacesOfFlows, KeysOfPool},
		args: names("member"),
		more: true,
	},
	"inspect_job": {
		keys: names("body meta settings pace count leases dead seen flows flow_settings departed departed:<flow> attempts riders calendar"),
		then: []Keys{PurgedPlaces, PlacesOfFlows, GroupsOfFlows, GroupDepartures, KeysOfPool},
		args: names("id flow levels member"),
	},
	"inspect_pool": {
		keys: names("p:<pool>:conf p:<pool>:pace p:<pool>:buckets p:<pool>:departed"),
		more: true,
	},
	"inspect_jobs": {
		keys: names("body meta attempts"),
		args: names("most_bytes bare"),
		more: true,
	},
	"inspect_result": {
		keys: names("body meta seen results result_ends settings answer:<id>"),
		args: names("id waited"),
	},
	"instances": {
		keys: names("tundish:instances"),
		args: names("id silence"),
	},
	"move_events": {
		keys: names("outbox outbox_texts"),
		args: names("at_most"),
		more: true,
	},
	"move_callbacks": {
		keys: names("callbacks callback_texts callback_counts"),
		args: names("at_most most_bytes levels"),
		more: true,
	},
	"note_differences": {
		keys: names("differing"),
		args: names("process differences"),
	},
	"off_calendar": {
		then: []Keys{CalendarsOfFlows},
		more: true,
	},
	"oldest_waiting": {
		keys: names("body count"),
		then: []Keys{PlacesOfFlows},
		args: names("most_bytes keep came id"),
	},
	"override": {
		keys: names("settings"),
		args: names("limit change limits_rev"),
	},
	"purge": {
		keys: names("body meta settings count seen seen_window seen_minute flows flow_settings attempts expiries"),
		then: []Keys{PurgedPlaces, PlacesOfFlows, GroupsOfFlows},
		args: names("purge keep_later at_most most_bytes levels flow"),
	},
	"redrive": {
		keys: names("body meta settings pace count dead flows flow_settings calendar attempts callback_texts callback_counts expiries"),
		then: []Keys{PlacesOfFlows, GroupsOfFlows},
		args: names("channel bucket levels flow_count spare"),
		more: true,
	},
	"relocate": {
		keys: names("settings conf_aside body leases dead seen seen_window seen_minute callback_texts"),
		then: []Keys{KeysToMove},
		args: names("step generation what schema revision"),
		more: true,
	},
	"renew_timetable": {
		keys: names("settings"),
		args: names("channel bucket plan timetable"),
	},
	"reserve": {
		keys: names("settings pace calendar leases riders body dead count"),
		then: []Keys{KeysOfPool},
		args: names("want horizon member dispatcher stepped steps"),
	},
	"reserve_flows": {
		keys: names("pace"),
		then: []Keys{CalendarsOfGroups},
		args: names("want horizon again"),
	},
	"schedule_runs": {
		keys: names("schedules body meta seen"),
		args: names("name"),
	},
	"settle": {
		keys: names("body meta settings pace count leases dead seen seen_window seen_minute flows flow_settings calendar idle attempts disabled outbox outbox_texts results result_ends callbacks callback_texts riders callback_counts expiries"),
		then: []Keys{PlacesOfFlows, GroupsOfFlows, KeysOfPool},
		args: names("channel bucket levels member flow_count"),
		more: true,
	},
	"sift": {
		keys: names("body meta"),
		then: []Keys{PlacesOfFlows},
		args: names("list from at_most"),
	},
	"start": {
		keys: names("meta leases"),
		args: names("id epoch claim started lease"),
	},
	"sweep": {
		keys: names("body meta settings pace count leases dead seen seen_window seen_minute claims flows flow_settings calendar groups group_settings idle seen_until attempts riders flow_makers"),
		then: []Keys{PurgedPlaces, PlacesOfFlows, KeysOfPool},
		args: names("levels lease_count cursor flow_cursor latest member channel"),
	},
	"take_back": {
		keys: names("body meta settings pace count leases dead flows flow_settings calendar attempts outbox outbox_texts callbacks callback_texts riders callback_counts"),
		then: []Keys{PurgedPlaces, PlacesOfFlows, GroupsOfFlows, KeysOfPool},
		args: names("channel bucket levels is_crash poison_crashes poison_last longest_wait latest member flow_count"),
		more: true,
	},
	"trim_results": {
		keys: names("count results result_ends"),
		args: names("at_most"),
	},
	"trim_dead": {
		keys: names("body meta settings count dead seen seen_window seen_minute attempts"),
		args: names("at_most most_bytes"),
	},
}

func names(list string) []string { return strings.Fields(list) }
