// Package compose holds the files of deploy/compose to what they say: compose-go loads them as Docker does, and each service's command line runs as a process.
package compose
