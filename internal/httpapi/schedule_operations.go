package httpapi

import (
	"encoding/json"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
)

// ScheduleName names a schedule.
type ScheduleName struct {
	Schedule string `json:"schedule" in:"path"`
}

// ScheduleList are schedules.
type ScheduleList struct {
	Schedules []opsview.Schedule `json:"schedules"`
}

// ScheduleRuns lists the last fires of a schedule.
type ScheduleRuns struct {
	Runs []opsview.ScheduleRun `json:"runs"`
}

// ScheduleDefinition creates or changes a schedule.
type ScheduleDefinition struct {
	ScheduleName
	Definition json.RawMessage `json:"-" in:"body" schema:"ScheduleSettings"`
}

// SchedulePause pauses a schedule.
type SchedulePause struct {
	ScheduleName
	PauseReason
}

// ScheduleRemoval removes a schedule.
type ScheduleRemoval struct {
	ScheduleName

	// Only show what would be removed.
	DryRun bool `json:"dry_run,omitempty"`
}

// RemovedSchedule is a schedule that was removed, or would be.
type RemovedSchedule struct {
	Schedule opsview.Schedule `json:"schedule"`

	// False of a dry run.
	Removed bool `json:"removed"`
}

// The operations of schedules.
var (
	ListSchedules = &Operation[struct{}, *ScheduleList]{
		ID: "listSchedules", Method: "GET", Path: "/v1/schedules", Roles: []apikey.Role{apikey.RoleRead},
		Answer:   "In the order of the configured buckets, then by name; schedules of buckets that were removed from the configuration come last.",
		Commands: []string{"schedule list"},
		Summary:  "List the schedules of the buckets of the caller's key",
	}

	ShowSchedule = &Operation[ScheduleName, *opsview.Schedule]{
		ID: "showSchedule", Method: "GET", Path: "/v1/schedules/{schedule}", Roles: []apikey.Role{apikey.RoleRead}, Faults: []code{codeScheduleConflict},
		Commands: []string{"schedule show"},
		Summary:  "Show a schedule with its next five fires",
	}

	SetSchedule = &Operation[ScheduleDefinition, *opsview.Schedule]{
		ID: "setSchedule", Method: "PUT", Path: "/v1/schedules/{schedule}", Roles: []apikey.Role{apikey.RoleAdmin}, Faults: []code{codeScheduleConflict}, MaxBody: maxScheduleBytes,
		Answer:   "The schedule as it is now. With `dry_run`, as it would be.",
		Commands: []string{"schedule set"},
		Summary:  "Make a schedule, or change one that was made so",
		Description: `It holds in all processes and across restarts, whatever configurations say, until it is removed by DELETE. A pause stays. Another
` + "`cron`" + ` or ` + "`timezone`" + ` counts from now on; what else changes holds from the next fire on. Safe to repeat. A name that the
configuration has, or that another bucket has, is a 409 that says where it is.`,
	}

	RemoveSchedule = &Operation[ScheduleRemoval, *RemovedSchedule]{
		ID: "removeSchedule", Method: "DELETE", Path: "/v1/schedules/{schedule}", Roles: []apikey.Role{apikey.RoleAdmin}, Faults: []code{codeScheduleConflict}, OptionalBody: true,
		Answer:   "It is removed, and shown as it was.",
		Commands: []string{"schedule remove"},
		Summary:  "Remove a schedule that was made through the API",
		Description: `Its jobs stay. Where the configuration has a schedule of this name for the same bucket, that comes instead. A schedule of the
configuration is a 409: it goes with a reload.`,
	}

	ShowScheduleRuns = &Operation[ScheduleName, *ScheduleRuns]{
		ID: "showScheduleRuns", Method: "GET", Path: "/v1/schedules/{schedule}/runs", Roles: []apikey.Role{apikey.RoleRead}, Faults: []code{codeScheduleConflict},
		Answer:   "Newest first.",
		Commands: []string{"schedule show"},
		Summary:  "Show what became of the last twenty fires of a schedule",
	}

	PauseSchedule = &Operation[SchedulePause, *opsview.Schedule]{
		ID: "pauseSchedule", Method: "POST", Path: "/v1/schedules/{schedule}/pause", Roles: []apikey.Role{apikey.RoleOperate}, Faults: []code{codeScheduleConflict}, OptionalBody: true,
		Commands:    []string{"schedule pause"},
		Summary:     "Stop the fires of a schedule",
		Description: "In all processes and across restarts, until it is resumed. A fire that an operator asks for goes ahead. Safe to repeat.",
	}

	ResumeSchedule = &Operation[ScheduleName, *opsview.Schedule]{
		ID: "resumeSchedule", Method: "POST", Path: "/v1/schedules/{schedule}/resume", Roles: []apikey.Role{apikey.RoleOperate}, Faults: []code{codeScheduleConflict},
		Commands:    []string{"schedule resume"},
		Summary:     "Let a paused schedule fire again",
		Description: "From its next time on: fires of the pause are not made up for. Safe to repeat.",
	}

	FireSchedule = &Operation[ScheduleName, *opsview.Schedule]{
		ID: "fireSchedule", Method: "POST", Path: "/v1/schedules/{schedule}/fire", Roles: []apikey.Role{apikey.RoleOperate}, Faults: []code{codeScheduleConflict},
		Commands:    []string{"schedule fire"},
		Summary:     "Have a schedule fire now",
		Description: "Also while it is paused. A dispatcher enqueues the job, whose id is in the answer. While such a fire waits, another request is the same one.",
	}
)
