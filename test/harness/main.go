package harness

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Programs is the folder with the built programs.
var Programs string

// Mains are the main functions of other programs: a test starts this program again with a variable in its environment to run one of them.
var Mains = map[string]func(value string) error{}

// Main builds the programs and runs the tests of a package: its TestMain.
func Main(m *testing.M) {
	for variable, main := range Mains {
		if value := os.Getenv(variable); value != "" {
			fmt.Fprintln(os.Stderr, "test:", main(value))
			os.Exit(1)
		}
	}
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "tundish-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	Programs = dir
	const module = "github.com/tundish-io/tundish"
	build := exec.Command("go", "build", "-o", dir, module+"/cmd/producer", module+"/cmd/dispatcher")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return m.Run(), nil
}
