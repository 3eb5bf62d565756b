// Package llmprovider plays a provider of large language models, for tests and examples. A [Provider] is an [http.Handler] that serves OpenAI's chat
// completions, completions, responses and embeddings, or Anthropic's messages. It reports their usage, and refuses calls above its limits, with the
// errors and headers of the real provider.
//
// It is stricter than a provider: it sums every sliding window, to the nanosecond. It records calls in a [Log], from which a test computes the sum of
// any window, the refused calls, and how much of a budget was used.
//
// A call is charged to the limits as its provider does. As [OpenAI] its input and its max_tokens count on arrival; without max_tokens the tokens of its
// response. As [Anthropic] its input counts on arrival, and its output as it is produced. A call that is refused, or gets a [Fault], is charged nothing.
// A client that disconnects is charged the whole response, because a provider may go on without it.
//
// Azure's form of a path names the model, input by reference has Settings.Unseen tokens more, and clients poll a background response: see background.go.
// The response to a request with "stream" is sent in pieces, each when its output counts: see stream.go.
//
// The package shares no code with the worker llm, so that neither repeats a mistake of the other.
package llmprovider
