package llm

import (
	"encoding/json"
	"slices"

	"github.com/tundish-io/tundish/internal/jsonscan"
)

// input is the kind of a request by its input. Each kind has estimates of its own.
type input int

// The kinds. Of a request of several kinds, the last one counts.
const (
	inputText       input = iota // all of it is in the body: text, and images
	inputDocuments               // it has documents, whose tokens don't follow from their bytes
	inputReferences              // the provider has part of it: earlier responses, a conversation, a stored prompt, a thread
	inputSearches                // tools that the provider runs add to it: web search, file search, connectors

	inputs // how many kinds
)

// references are members that name input which the provider has.
var references = []string{"previous_response_id", "conversation", "assistant_id"}

// searches are members with which the provider searches.
var searches = []string{"web_search_options", "data_sources", "search_parameters", "plugins", "mcp_servers"}

// clientTools are the types of tools that the client runs, or that add no input, in both APIs. Anthropic's end with dates.
var clientTools = []string{
	"", "function", "custom", "namespace", "local_shell", "apply_patch", "computer", "image_generation",
	"bash", "text_editor", "memory",
}

// readInput finds the kind of a request's input.
func (r *request) readInput(object map[string]json.RawMessage) {
	isNamed := func(name string) bool { return isGiven(object[name]) }
	switch {
	case slices.ContainsFunc(searches, isNamed) || hasSearchTool(object["tools"]):
		r.input = inputSearches
	case slices.ContainsFunc(references, isNamed) || isObject(object["prompt"]) || r.refers:
		r.input = inputReferences
	case r.documents > 0:
		r.input = inputDocuments
	}
}

// hasSearchTool reports whether one of the tools is run by the provider. A tool of an unknown type is.
func hasSearchTool(tools json.RawMessage) (has bool) {
	jsonscan.Elements(tools, func(tool []byte) bool {
		jsonscan.Members(tool, func(name, value []byte) {
			if jsonscan.Is(name, "type") {
				has = !isClientTool(value)
			}
		})
		return !has
	})
	return has
}

// isClientTool reports whether a client runs tools of a type. A type that is no text is none.
func isClientTool(kind []byte) bool {
	var room [maxWord]byte
	said := jsonscan.Append(room[:0], kind, maxWord)
	return slices.ContainsFunc(clientTools, func(known string) bool {
		return string(said) == known || known != "" && len(said) > len(known) && string(said[:len(known)]) == known && said[len(known)] == '_'
	})
}

// unseen returns how many parts of the input are not in the body.
func (r *request) unseen() int64 {
	switch r.input {
	case inputText:
		return 0
	case inputDocuments:
		return r.documents
	default:
		return 1
	}
}

// promptsIn returns the number of prompts in a member: a list of texts, or of lists of tokens, has many, and one list of tokens is one.
func promptsIn(value json.RawMessage) int64 {
	if len(value) == 0 || value[0] != '[' {
		return 1
	}
	prompts := int64(0)
	jsonscan.Elements(value, func(element []byte) bool {
		if element[0] != '"' && element[0] != '[' {
			return false
		}
		prompts++
		return true
	})
	return max(prompts, 1)
}

// isListOfTexts reports whether a member is a list of texts or of tokens, as for embeddings: responses have a list of objects.
func isListOfTexts(value json.RawMessage) (is bool) {
	jsonscan.Elements(value, func(element []byte) bool {
		is = element[0] != '{'
		return false
	})
	return is
}
