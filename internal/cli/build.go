package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// build describes a program as it was built.
type build struct {
	Program string `json:"program"`
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"` // of the commit
	Changed bool   `json:"changed,omitempty"`
	Go      string `json:"go"`
}

func buildOf(program string) build {
	b := build{Program: program, Version: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if b.Version = info.Main.Version; b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	b.Commit, b.Date, b.Changed = fmt.Sprintf("%.12s", settings["vcs.revision"]), settings["vcs.time"], settings["vcs.modified"] == "true"
	return b
}

func (b build) String() string {
	text := b.Version
	if b.Commit != "" {
		text += fmt.Sprintf(", commit %s of %s", b.Commit, b.Date)
	}
	if b.Changed {
		text += " with changes"
	}
	return text + ", " + b.Go
}
