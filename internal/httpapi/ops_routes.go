package httpapi

import "slices"

// routes returns all routes that show and control buckets.
func (o *ops) routes() []route {
	return slices.Concat([]route{
		bind(o.fault, ShowStatus, o.showStatus),
		bind(o.fault, ShowFleet, o.showFleet),
		bind(o.fault, ShowAudit, o.showAudit),
		bind(o.fault, ListSessions, o.listSessions),
		bind(o.fault, EndSession, o.endSession),
		{Stream.Method, Stream.Path, o.stream, roles(Stream.Roles...), Stream.described()},
		bind(o.fault, ListBuckets, o.listBuckets),
		bind(o.fault, ShowBucket, o.showBucket),
		bind(o.fault, ShowWhy, o.showWhy),
		bind(o.fault, ShowHistory, o.showHistory),
		bind(o.fault, ShowTimetable, o.showTimetable),
		bind(o.fault, SetBucket, o.setBucket),
		bind(o.fault, ResetBucket, o.resetBucket),
		bind(o.fault, ResetSetting, o.resetSetting),
		bind(o.fault, PauseBucket, o.pauseBucket),
		bind(o.fault, ResumeBucket, o.resumeBucket),
		bind(o.fault, DrainBucket, o.drainBucket),
		bind(o.fault, StopDrain, o.stopDrain),
		bind(o.fault, ReleaseBucket, o.releaseBucket),
		bind(o.fault, PurgeBucket, o.purgeBucket),

		bind(o.fault, FindJob, o.findJob),
		few(o.lists, bind(o.fault, ListJobs, o.listJobs)),
		few(o.lists, bind(o.fault, ListDead, o.listDead)),
		few(o.lists, bind(o.fault, ShowDeadReasons, o.showDeadReasons)),
		few(o.lists, bind(o.fault, ShowUsage, o.showUsage)),
		bind(o.fault, RetryJobs, o.retryJobs),
		bind(o.fault, RedriveDead, o.redriveDead),
		bind(o.fault, DropDead, o.dropDead),

		bind(o.limits.fault, ShowRefusals, o.showRefusals),

		bind(o.fault, ListPools, o.listPools),
		bind(o.fault, ShowPool, o.showPool),
		bind(o.fault, SetPool, o.setPool),
		bind(o.fault, ReleasePool, o.releasePool),
		bind(o.fault, ResetPool, o.resetPool),
		bind(o.fault, ResetPoolSetting, o.resetPoolSetting),

		bind(o.fault, ListSchedules, o.listSchedules),
		bind(o.fault, ShowSchedule, o.showSchedule),
		bind(o.fault, SetSchedule, o.setSchedule),
		bind(o.fault, RemoveSchedule, o.removeSchedule),
		bind(o.fault, ShowScheduleRuns, o.showScheduleRuns),
		bind(o.fault, PauseSchedule, o.pauseSchedule),
		bind(o.fault, ResumeSchedule, o.resumeSchedule),
		bind(o.fault, FireSchedule, o.fireSchedule),
	}, o.flowRoutes(), o.groupRoutes())
}
