package llm

import (
	"cmp"

	"github.com/tundish-io/tundish/shaper"
)

// sender is the caller and flow that a request counts for, and whether it counts by the name of its model.
type sender struct {
	caller     string // its mark, "" none
	isUnlisted bool   // the settings do not list the model: it counts as one of the others
}

// isOf sets the sender of a request. The caller of a request is known once it is delivered.
func (r *request) isOf(c Config, attempt *shaper.Attempt) {
	r.sentBy = sender{attempt.Caller, r.model != "" && !c.Takes(r.model)}
}

// subject returns the model whose estimate the response to a request updates.
func (r *request) subject() string {
	if r.sentBy.isUnlisted {
		return otherModels
	}
	return cmp.Or(r.model, unknownModel)
}

// rowOf returns the model name under which usage counts: the first of names that is valid. Names that the settings do not list never have rows: they
// come from responses, and from requests whose model Tundish cannot read.
func (c Config) rowOf(names ...string) string {
	model := cmp.Or(names...)
	switch {
	case model == "":
		return unknownModel
	case !c.Takes(model):
		return otherModels
	}
	return model
}
