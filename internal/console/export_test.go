package console

// Patterns are those of all routes of the console.
func Patterns() (patterns []string) {
	for _, route := range forVisitors {
		patterns = append(patterns, route.pattern)
	}
	for _, route := range forAll {
		patterns = append(patterns, route.pattern)
	}
	return patterns
}
