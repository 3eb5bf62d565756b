package app

import (
	"maps"
	"os"
)

// fileStamps are the states of files at an instant. For a link it is the file that the link points to: Kubernetes switches links to another version of
// all files at once.
type fileStamps map[string]os.FileInfo

// note records the current state of a file.
func (s fileStamps) note(path string) {
	info, err := os.Stat(path)
	if err != nil {
		info = nil
	}
	s[path] = info
}

// now returns the current state of the same files.
func (s fileStamps) now() fileStamps {
	found := make(fileStamps, len(s))
	for path := range s {
		found.note(path)
	}
	return found
}

// same reports whether no file differs.
func (s fileStamps) same(as fileStamps) bool {
	return maps.EqualFunc(s, as, func(a, b os.FileInfo) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
	})
}
