// Package httpworker delivers jobs as requests to one HTTP API: the worker of the kind "http".
//
// A job has a method, headers, and an optional payload. It has a path and a query below its flow's URL or, without one, below the base URL of its bucket
// ([Config.BaseURL]). A path that climbs out of the base URL is refused.
//
// The credentials of the bucket ([Auth]), its headers and its client certificate go only to the origin of the base URL. The credentials of a flow go only to the
// origin of the flow's URL or, without one, of the base URL. A job can replace none of them.
//
// Each request has an Idempotency-Key: the job's own, or its id, which is the same at every attempt. One permit is one request: see package outgoing,
// which also says where connections may go.
package httpworker
