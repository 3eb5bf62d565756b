package test

import (
	"testing"

	"github.com/tundish-io/tundish/internal/redistest"
	"github.com/tundish-io/tundish/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// system is the running programs, with what the tests of this folder ask of them.
type system struct{ *harness.System }

func start(t *testing.T, server *redistest.Server, p harness.Plan) *system {
	t.Helper()
	return &system{harness.Start(t, server, p)}
}
