package httpapi

import (
	"net/http"
	"time"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper/fleet"
)

// FleetQuery selects what a fleet response has.
type FleetQuery struct {
	// `true` adds the departures of each bucket in the last minute.
	Buckets bool `json:"buckets" in:"query"`
}

// Fleet are the processes on this Redis.
type Fleet struct {
	// By the clock of Redis.
	Now time.Time `json:"now"`

	// The processes that sent a heartbeat in the last 15 seconds.
	Processes []fleet.Process `json:"processes"`

	// The buckets of the caller's key for which a process reports departures, by name. Only with `buckets`.
	Buckets map[string]*Traffic `json:"buckets,omitempty"`
}

// Traffic is the departures of a bucket, by all processes.
type Traffic struct {
	// Departures a second, in the last ten seconds that all processes have reported.
	Rate float64 `json:"rate"`

	// Departures in each five seconds of the last minute, the oldest first.
	Minute []int64 `json:"minute"`

	// A process delivers its jobs.
	Served bool `json:"served"`
}

// History is the counts of a bucket over the last 24 hours.
type History struct {
	Bucket string `json:"bucket"`

	// One for each five minutes, the oldest first.
	Points []fleet.Point `json:"points"`
}

// The operations on the counts that all processes report.
var (
	ShowFleet = &Operation[FleetQuery, *Fleet]{
		ID: "showFleet", Method: "GET", Path: "/v1/fleet", Roles: []apikey.Role{apikey.RoleRead},
		Answer:   "The processes.",
		Commands: []string{"fleet", "status"},
		Summary:  "List the processes that run, and what leaves buckets",
		Description: `Each process sends a heartbeat with its counts every five seconds. A process that stops leaves the list at once, and a killed one within 15
seconds.`,
	}

	ShowHistory = &Operation[BucketName, *History]{
		ID: "showHistory", Method: "GET", Path: "/v1/buckets/{bucket}/history", Roles: []apikey.Role{apikey.RoleRead},
		Answer:   "The points.",
		Commands: []string{"bucket history"},
		Summary:  "What was counted of a bucket in the last 24 hours, in points of five minutes",
		Description: `All processes are in it. What they count is in it within five seconds; what a process counted in its last five seconds before it was killed is
missing.`,
	}
)

// BucketWhy is the verdict on a bucket.
type BucketWhy struct {
	Bucket string `json:"bucket"`
	opsview.Verdict
}

// ShowWhy shows the verdict on a bucket.
var ShowWhy = &Operation[BucketName, *BucketWhy]{
	ID: "showWhy", Method: "GET", Path: "/v1/buckets/{bucket}/why", Roles: []apikey.Role{apikey.RoleRead},
	Answer:   "The verdict.",
	Commands: []string{"bucket why"},
	Summary:  "Whether a bucket delivers, and what keeps the jobs that wait",
	Description: `It is the ` + "`verdict`" + ` of the bucket, with up to 1000 of its flows looked at, by chance where there are more; lists of buckets look at 200. Deliveries
count within about ten seconds. That no process delivers its jobs is known 15 seconds after the last one was killed.`,
}

func (o *ops) showWhy(r *http.Request, in *BucketName) (*BucketWhy, error) {
	if err := o.knows(r.Context(), in.Bucket); err != nil {
		return nil, err
	}
	infos, err := o.buckets.BucketInfos(r.Context(), in.Bucket)
	if err != nil {
		return nil, err
	}
	verdicts, err := o.buckets.Verdicts(r.Context(), infos)
	if err != nil {
		return nil, err
	}
	return &BucketWhy{in.Bucket, *opsview.VerdictOf(&verdicts[0])}, nil
}

func (o *ops) showFleet(r *http.Request, in *FleetQuery) (*Fleet, error) {
	s, err := o.buckets.Fleet().Look(r.Context())
	if err != nil {
		return nil, err
	}
	list := &Fleet{Now: s.Now.UTC(), Processes: s.Processes}
	if list.Processes == nil {
		list.Processes = []fleet.Process{}
	}
	if in.Buckets {
		list.Buckets = map[string]*Traffic{}
		for _, name := range s.Buckets() {
			if !isForeign(r, name) {
				minute := s.Minute(name)
				list.Buckets[name] = &Traffic{Rate: s.Rate(name), Minute: minute[:], Served: s.IsServed(name)}
			}
		}
	}
	return list, nil
}

func (o *ops) showHistory(r *http.Request, in *BucketName) (*History, error) {
	if err := o.knows(r.Context(), in.Bucket); err != nil {
		return nil, err
	}
	points, err := o.buckets.Fleet().History(r.Context(), in.Bucket)
	return &History{in.Bucket, points}, err
}
