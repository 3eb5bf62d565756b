// Package asynq shapes the queue of a team that uses github.com/hibiken/asynq: even departures, fair flows and paced retries, with the handlers, the
// inspector and the tools that the team already uses.
//
// A [Worker] hands each job to an asynq queue at its slot, as a task with the job's payload and headers. A job ends in one of two ways (see [Settle]):
//
//   - With [SettleHandler], the default, the handler ends it. The user wraps the handlers of an asynq server in [Middleware]. An error of
//     a handler is retried at the pace of the bucket, and asynq neither retries nor archives the task.
//   - With [SettleHandover] the job is done as soon as asynq has its task. Handlers stay unchanged. asynq retries them, and
//     nothing paces them.
//
// [Dial] makes a client that enqueues *asynq.Task values into buckets, with the options of asynq. [FromHandler] runs an asynq.Handler in the
// dispatcher's own process, without any asynq queue.
package asynq
