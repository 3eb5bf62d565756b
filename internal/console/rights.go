package console

import (
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

// may reports whether the visitor has one of the roles. It only hides actions that the API would refuse.
func (v *visit) may(roles ...apikey.Role) bool {
	return v.visitor.Key == nil || v.visitor.Key.Has(roles)
}

// hidesPayloads reports whether the visitor must not see payloads.
func (v *visit) hidesPayloads() bool { return v.cfg.HidePayloads && !v.may(apikey.RoleOperate) }

// withoutPayloads removes the payloads from a response of the API. All responses pass through it, so no page has to do it.
func withoutPayloads(answer any) {
	var jobs []*opsview.Job
	switch answer := answer.(type) {
	case *opsview.Job:
		jobs = []*opsview.Job{answer}
	case *opsview.JobPage:
		jobs = answer.Jobs
	case *opsview.DeadPage:
		jobs = answer.Dead
	case *httpapi.FoundJobs:
		jobs = answer.Jobs
	}
	for _, job := range jobs {
		job.Payload, job.PayloadBytes = nil, nil
	}
}
