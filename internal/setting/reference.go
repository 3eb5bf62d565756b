package setting

import "strings"

// References are the prefixes of a text that refers to a secret elsewhere: in a variable, in a file, in a credential of systemd. Package config resolves
// them. Where a caller must not choose what a process reads, they are refused.
const (
	EnvReference  = "env:"
	FileReference = "file:"
	CredReference = "cred:"
)

// IsReference reports whether a text refers to a secret elsewhere.
func IsReference(text string) bool {
	return strings.HasPrefix(text, EnvReference) || strings.HasPrefix(text, FileReference) || strings.HasPrefix(text, CredReference)
}
