package build

import (
	"runtime"
	"testing"
)

// A build without git says what it was told.
func TestTold(t *testing.T) {
	version, commit, date = "v1.2.3", "0123456789abcdef", "2026-11-27T09:00:00Z"
	defer func() { version, commit, date = "", "", "" }()
	if got, want := Of("dispatcher").String(), "v1.2.3, commit 0123456789ab of 2026-11-27T09:00:00Z, "+runtime.Version(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestUntold(t *testing.T) {
	if got := Of("x"); got.Version == "" || got.Program != "x" || got.Go != runtime.Version() {
		t.Errorf("%+v", got)
	}
}
