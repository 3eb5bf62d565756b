package app

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tundish-io/tundish/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }
