package config

import (
	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

// settings has the shape of the file: every key of this version is a field of it, or of the public types in it, and no other list of them exists.
type settings struct {
	Revision   int64             `setting:"revision"`
	Redis      Redis             `setting:"redis"`
	Producer   Producer          `setting:"producer"`
	Dispatcher Dispatcher        `setting:"dispatcher"`
	Console    Console           `setting:"console"`
	Log        Log               `setting:"log"`
	Tracing    Tracing           `setting:"tracing"`
	Keys       []keySettings     `setting:"keys"`
	Limits     []admission.Limit `setting:"limits"`
	Pools      []shaper.Pool     `setting:"pools"`
	Buckets    []Bucket          `setting:"buckets"`
	Hooks      []hookSettings    `setting:"hooks"`

	Schedules []scheduleSettings `setting:"schedules"`
}

type keySettings struct {
	Name    string   `setting:"name"`
	Caller  string   `setting:"caller"`
	SHA256  digests  `setting:"sha256"`
	Roles   []string `setting:"roles"`
	Buckets []string `setting:"buckets"`
	Flows   []string `setting:"flows"`
	Groups  []string `setting:"groups"`
	Tier    string   `setting:"tier"`
}

// The kinds of workers.
const (
	workerWebhook = "webhook"
	workerHTTP    = "http"
	workerLLM     = "llm"
	workerAsynq   = "asynq"
	workerProgram = "program" // a program of the user's, by package tundish
)

// workerKinds lists them.
func workerKinds() []string {
	return []string{workerWebhook, workerHTTP, workerLLM, workerAsynq, workerProgram}
}
