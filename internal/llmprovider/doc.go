// Package llmprovider plays a provider of large language models, for tests and examples. A [Provider] is an [http.Handler] that
// answers OpenAI's chat completions, completions, responses and embeddings, or Anthropic's messages, tells their usage, and refuses what exceeds its limits, with the errors and the headers
// of the real one.
//
// It is stricter than a provider: it sums every sliding window, to the nanosecond. What it has seen is a [Log], from which a test computes
// how much any window had, what was refused, and how much of a budget was used.
//
// A call is charged to the limits as its provider does. As [OpenAI] its input and its max_tokens count when it comes; without max_tokens
// what its answer will have. As [Anthropic] its input counts when it comes, and its output as it comes. A call that is refused, or answered by a
// [Fault], is charged nothing. A client that goes away is charged the whole answer, because a provider may go on without it.
//
// Azure's form of a path names the model, input by reference has Settings.Unseen tokens more, and a response in the background is asked for again: see
// background.go. A request with "stream" is answered in pieces, each when its output counts: see stream.go.
//
// The package shares no code with the worker llm, so that neither repeats a mistake of the other.
package llmprovider
