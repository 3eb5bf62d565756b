package app

import (
	"maps"
	"os"
)

// fileStamps are files as they were at an instant. A link stands for the file behind it: Kubernetes turns a link to another version of all files at once.
type fileStamps map[string]os.FileInfo

// note records the current state of a file.
func (s fileStamps) note(path string) {
	info, err := os.Stat(path)
	if err != nil {
		info = nil
	}
	s[path] = info
}

// now returns the same files as they are now.
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
