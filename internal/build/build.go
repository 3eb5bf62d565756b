// Package build describes the build of a program: for --version, the API, the console, the log and the metrics.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set in a build without git: -ldflags "-X github.com/tundish-io/tundish/internal/build.version=v1.2.3", and commit and date as well.
var version, commit, date string

// Build describes the build of a program.
type Build struct {
	Program string `json:"program,omitempty"`
	Version string `json:"version"` // of the module, "devel" of a build outside of any version
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"` // of the commit
	Changed bool   `json:"changed,omitempty"`
	Go      string `json:"go"`
}

// Of describes this program, under a name.
func Of(program string) Build {
	b := Build{Program: program, Version: "devel", Go: runtime.Version()}
	settings := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if v := info.Main.Version; v != "" && v != "(devel)" {
			b.Version = v
		}
	}
	b.Commit, b.Date, b.Changed = settings["vcs.revision"], settings["vcs.time"], settings["vcs.modified"] == "true"
	for _, given := range []struct {
		text string
		to   *string
	}{{version, &b.Version}, {commit, &b.Commit}, {date, &b.Date}} {
		if given.text != "" {
			*given.to = given.text
		}
	}
	b.Commit = fmt.Sprintf("%.12s", b.Commit)
	return b
}

func (b Build) String() string {
	text := b.Version
	if b.Commit != "" {
		text += fmt.Sprintf(", commit %s of %s", b.Commit, b.Date)
	}
	if b.Changed {
		text += " with changes"
	}
	return text + ", " + b.Go
}
