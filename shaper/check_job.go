package shaper

import "errors"

// Check names the flow and the group of a job of this bucket. It reports every fault of the job here: joined errors, each a [*FieldError]. The worker
// checks what it needs of the URL and the headers.
func (b *Bucket) Check(job *Job) (flow, group string, err error) {
	flow, flowErr := b.Flow.NameOf(job)
	group, groupErr := b.Group.NameOf(job)
	return flow, group, errors.Join(b.Callbacks.Check(b.Name, job), job.Validate(b.MaxPayload), flowErr, groupErr)
}
