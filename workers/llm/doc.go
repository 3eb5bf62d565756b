// Package llm delivers jobs as requests to the API of a large language model: the worker of the kind "llm".
//
// A job is a request of the worker http, see package httpworker: a path below the base URL, headers and a JSON body. The body is one of OpenAI's chat
// completions, completions, responses or embeddings, or one of Anthropic's messages ([API]).
//
// Budgets count tokens. [Estimate] returns how many tokens a request reserves before it is sent, and [Usage] how many it used. [Learned] corrects later
// estimates by the usage that responses report.
//
// Queued jobs do not stream: a response is stored, or sent in a callback, as a whole.
package llm
