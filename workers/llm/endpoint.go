package llm

import (
	"net/url"
	"slices"
	"strings"
)

// endpoint is the parsed path of a request.
type endpoint struct {
	model string // the deployment that the path names; "" none
	base  string // the deployment that the base URL names, for a request that names no model; "" none
	last  string // segment of the path

	isOfThread bool // of OpenAI's assistants

	at     int    // the segment that names the model
	method string // ":" and the method after its name; "" none
}

// endpoint reads the path of a request, or its URL.
func (c Config) endpoint(address string) endpoint {
	e := endpointOf(address)
	e.base = endpointOf(c.HTTP.BaseURL + "/").model
	return e
}

// endpointOf reads a path or a URL. Azure names a deployment as /deployments/{model}/…, Bedrock as /model/{model}/invoke, and Google as
// /models/{model}:generateContent.
func endpointOf(address string) (e endpoint) {
	address, _, _ = strings.Cut(address, "?")
	segments := strings.Split(address, "/")
	e.last = segments[len(segments)-1]
	e.isOfThread = slices.Contains(segments, "threads")
	for i, before := range segments[:len(segments)-1] {
		name, err := url.PathUnescape(segments[i+1])
		if err != nil {
			continue
		}
		switch before {
		case "deployments":
			e.model, e.at, e.method = name, i+1, ""
		case "model":
			if i+2 < len(segments) {
				e.model, e.at, e.method = name, i+1, ""
			}
		case "models":
			if at := strings.LastIndexByte(name, ':'); at >= 0 && slices.Contains(googleMethods, name[at+1:]) {
				e.model, e.at, e.method = name[:at], i+1, name[at:]
			}
		}
	}
	e.model = short(e.model)
	return e
}

// withModel returns an address with another model in place of the model that its path names.
func (e endpoint) withModel(address, model string) string {
	address, query, hasQuery := strings.Cut(address, "?")
	segments := strings.Split(address, "/")
	segments[e.at] = url.PathEscape(model) + e.method
	address = strings.Join(segments, "/")
	if hasQuery {
		address += "?" + query
	}
	return address
}

// googleMethods are the methods of models, after their name. The name of a fine-tuned model of OpenAI has colons, too.
var googleMethods = []string{"generateContent", "streamGenerateContent", "rawPredict", "streamRawPredict", "predict", "embedContent", "batchEmbedContents", "countTokens"}

// short returns a model's name, cut to maxModelBytes.
func short(model string) string { return model[:min(len(model), maxModelBytes)] }

// isEmbedding reports whether the API returns vectors, and no text.
func (e endpoint) isEmbedding() bool { return e.last == "embeddings" }

// withoutModel are the last segments of paths whose POST asks no model: they store something, count, check, or end something.
var withoutModel = []string{
	"assistants", "batches", "cancel", "complete", "containers", "conversations", "count_tokens", "file_batches", "files", "input_tokens", "items", "moderations",
	"parts", "threads", "uploads", "vector_stores",
}

// asksNoModel reports whether the path asks no model. A message of a thread is stored, and a run asks a model.
func (e endpoint) asksNoModel() bool {
	return slices.Contains(withoutModel, e.last) || e.isOfThread && e.last == "messages"
}
