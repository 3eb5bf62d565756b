package llmprovider

import (
	"cmp"
	"hash/fnv"
	"strings"
	"time"
)

// API is the provider that is played.
type API string

// The providers.
const (
	OpenAI    API = "openai"    // POST …/chat/completions, …/responses, …/embeddings
	Anthropic API = "anthropic" // POST …/messages
)

// kind is a kind of call, by the end of its path.
type kind string

const (
	chat        kind = "/chat/completions"
	completions kind = "/completions"
	responses   kind = "/responses"
	embeddings  kind = "/embeddings"
	messages    kind = "/messages"
)

// kindOf is the kind of a call to a path, "" none of this API.
func (api API) kindOf(path string) kind {
	kinds := []kind{chat, completions, responses, embeddings}
	if api == Anthropic {
		kinds = []kind{messages}
	}
	for _, k := range kinds {
		if strings.HasSuffix(path, string(k)) {
			return k
		}
	}
	return ""
}

// deploymentOf is the model that a path names, as of Azure: /deployments/{model}/….
func deploymentOf(path string) string {
	_, after, _ := strings.Cut(path, "/deployments/")
	name, _, _ := strings.Cut(after, "/")
	return name
}

// Unit is the unit of a limit.
type Unit string

// The units.
const (
	Requests Unit = "requests"
	Input    Unit = "input"  // tokens
	Output   Unit = "output" // tokens
	Tokens   Unit = "tokens" // input and output together
)

// Limit is an amount of a unit that no window of that length may exceed.
type Limit struct {
	Unit   Unit
	Amount int64
	Window time.Duration
}

// Settings describe a provider. The zero value is OpenAI without limits, whose responses have 500 tokens and take no time.
type Settings struct {
	API    API
	Limits []Limit

	// CallTime is the time from the arrival of a call to its response. An error is returned at once.
	CallTime time.Duration

	// Input returns the input tokens of a job's request. Nil: 25 % of the bytes of its text.
	Input func(id string) int64

	// Unseen is the additional input of a request that names an earlier response, a conversation or a stored prompt, or a tool that searches, in tokens.
	Unseen int64

	// IsStrict refuses stream_options, as some servers with OpenAI's API do.
	IsStrict bool

	// UsedFrom and UsedTo bound the output of a response, as a share of the max_tokens of its request, or of ExpectedOutput without it. The id chooses a
	// point between them, so an id always gets the same response. Zero of both: all of it.
	UsedFrom, UsedTo float64

	// ExpectedOutput is the output of a response to a request without max_tokens, before its share; 0 is 500.
	ExpectedOutput int64
}

const defaultOutput = 500

// output returns the tokens of the response to a request.
func (s *Settings) output(id string, r request) int64 {
	if r.kind == embeddings {
		return 0
	}
	share := 1.0
	if s.UsedTo > 0 {
		share = s.UsedFrom + chance(id)*(s.UsedTo-s.UsedFrom)
	}
	if r.maxOutput == 0 {
		return max(int64(share*float64(cmp.Or(s.ExpectedOutput, defaultOutput))), 1) * max(r.outputs, 1)
	}
	return min(max(int64(share*float64(r.maxOutput)), 1), r.maxOutput)
}

// chance returns a number from 0 to 1 that looks random and is always the same for an id.
func chance(id string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // a hash takes everything
	n := h.Sum64()
	n ^= n >> 33 // ids that differ in their last digit only differ in few bits of such a hash
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	return float64(n>>11) / (1 << 53)
}
