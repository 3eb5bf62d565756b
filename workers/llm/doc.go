// Package llm delivers jobs as requests to the API of a large language model: the worker of the kind "llm".
//
// A job is a request of the worker http, see package httpworker: a path below the base URL, headers and a JSON body. The body is one of
// OpenAI's chat completions, completions, responses or embeddings, or one of Anthropic's messages ([API]).
//
// Budgets count tokens. [Estimate] says how many of them a request reserves before it is sent, and [Usage] says how many it used. The
// difference between the two teaches the next estimates: see [Learned].
//
// Queued jobs do not stream: an answer is stored, or told to a callback, as a whole.
package llm
