package setting

import "strings"

// References are the prefixes of a text that stands for a secret kept elsewhere: in a variable, in a file, in a credential of systemd. Package config reads
// them; where a caller may not name what a process reads, they are refused.
const (
	EnvReference  = "env:"
	FileReference = "file:"
	CredReference = "cred:"
)

// IsReference reports whether a text stands for a secret kept elsewhere.
func IsReference(text string) bool {
	return strings.HasPrefix(text, EnvReference) || strings.HasPrefix(text, FileReference) || strings.HasPrefix(text, CredReference)
}
