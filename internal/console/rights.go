package console

import (
	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

// may reports whether the visitor may do what one of the roles may do. It only hides what the API would refuse.
func (v *visit) may(roles ...apikey.Role) bool {
	return v.visitor.Key == nil || v.visitor.Key.Has(roles)
}

// hidesPayloads reports whether the visitor must not see payloads.
func (v *visit) hidesPayloads() bool { return v.cfg.HidePayloads && !v.may(apikey.RoleOperate) }

// withoutPayloads takes the payloads out of an answer of the API. All answers pass it, so that no page has to think of it.
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
