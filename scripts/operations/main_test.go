package main

import "testing"

// Each generated file is as the code makes it. A change of a help text, a metric, a key or an operation makes it stale.
func TestGeneratedFilesAreFresh(t *testing.T) {
	t.Chdir("../..")
	if err := run(true); err != nil {
		t.Error(err)
	}
}
