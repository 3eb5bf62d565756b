package app

import (
	"fmt"
	"strings"
)

// fewOf names the first ones of a list, and how many there are: a line of the log does not list 3,000 buckets.
func fewOf(list []string) string {
	const few = 8
	if len(list) <= few {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:few], ", "), len(list)-few)
}
