package admission

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
	_ "pgregory.net/rapid" // its flags

	"github.com/tundish-io/tundish/internal/redistest"
)

func TestMain(m *testing.M) {
	if !redistest.Soak {
		if err := flag.Set("rapid.checks", "20"); err != nil { // -rapid.checks=100 is obeyed
			panic(err)
		}
	}
	goleak.VerifyTestMain(redistest.Main(m))
}
