package shaper

import "errors"

// Check names the flow and the group of a job of this bucket, and reports every fault that it has here: joined errors, each a [*FieldError].
// What a worker kind demands of the URL and the headers is the worker's to say.
func (b *Bucket) Check(job *Job) (flow, group string, err error) {
	flow, flowErr := b.Flow.NameOf(job)
	group, groupErr := b.Group.NameOf(job)
	return flow, group, errors.Join(b.Callbacks.Check(b.Name, job), job.Validate(b.MaxPayload), flowErr, groupErr)
}
