// Package scripts_test holds what the scripts do: each alone, in the order in which a bucket runs them, and against models. It is here and
// not beside the scripts because keys and texts are those of the packages store and codec.
package scripts_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/redistest"
)

func TestMain(m *testing.M) {
	if !redistest.Soak {
		if err := flag.Set("rapid.checks", "10"); err != nil { // -rapid.checks=100 is obeyed
			panic(err)
		}
	}
	goleak.VerifyTestMain(conforming{redistest.Main(m)})
}
