package harness

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Rewritten returns a file with the configuration of the producer, with some text replaced.
func (s *System) Rewritten(name string, oldnew ...string) (path string) {
	s.T.Helper()
	text, err := os.ReadFile(s.Config)
	if err != nil {
		s.T.Fatal(err)
	}
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(string(text), oldnew[i]) {
			s.T.Fatalf("the configuration has no %q:\n%s", oldnew[i], text)
		}
	}
	path = filepath.Join(filepath.Dir(s.Config), name)
	if err := os.WriteFile(path, []byte(strings.NewReplacer(oldnew...).Replace(string(text))), 0o600); err != nil {
		s.T.Fatal(err)
	}
	return path
}

// Operate runs `dispatcher bucket …` and returns its output.
func (s *System) Operate(args ...string) string {
	s.T.Helper()
	args = append([]string{"bucket"}, append(args, "--config", s.Config)...)
	out, err := exec.CommandContext(s.T.Context(), filepath.Join(Programs, "dispatcher"), args...).CombinedOutput()
	if err != nil {
		s.T.Fatalf("dispatcher %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// Command runs a program to its end and returns its stdout.
func Command(t *testing.T, wantCode int, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(Programs, program), args...).Output()
	code, said := 0, ""
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code, said = exit.ExitCode(), string(exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	if code != wantCode {
		t.Fatalf("%s %v: exit code %d, want %d\n%s%s", program, args, code, wantCode, out, said)
	}
	return string(out)
}
