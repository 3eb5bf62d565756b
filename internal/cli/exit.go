package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tundish-io/tundish/internal/config"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// The exit codes, as the package documents them.
const (
	exitDone = iota
	exitFailed
	exitUsage
	exitRefused
	exitNotFound
	exitUnreachable
)

// exitError is an error with the exit code of the program. With an empty text nothing is printed: the command has printed it all.
type exitError struct {
	code int
	text string
	err  error // the cause, nil if there is none to unwrap
}

func (e *exitError) Error() string { return e.text }
func (e *exitError) Unwrap() error { return e.err }

// fail returns an error with a code. A %w in the format is its cause.
func fail(code int, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &exitError{code: code, text: err.Error(), err: errors.Unwrap(err)}
}

// silent returns an error that exits with a code and prints nothing.
func silent(code int) error { return &exitError{code: code} }

// codeOf returns the exit code of an error: its own, or the code of its kind. There is no kind for an unreachable server: the code that called the
// server marks the error with fail.
func codeOf(err error) int {
	var exit *exitError
	var faults config.Faults
	var answered interface{ exitCode() int } // by a server
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &answered):
		return answered.exitCode()
	case errors.As(err, &faults), errors.Is(err, shaper.ErrTagChanged):
		return exitUsage
	case errors.Is(err, shaper.ErrNotFound), errors.Is(err, shaper.ErrUnknownBucket), errors.Is(err, operator.ErrUnknownPool):
		return exitNotFound
	default:
		return exitFailed
	}
}

// report prints an error, once, and returns the exit code.
func report(w io.Writer, program string, err error) int {
	if err == nil {
		return exitDone
	}
	text := err.Error()
	var faults config.Faults
	switch {
	case errors.As(err, &faults):
		list := fmt.Sprintf("the configuration has %s:\n  %s", opsview.Count(len(faults), "fault"), strings.ReplaceAll(faults.Error(), "\n", "\n  "))
		text = strings.Replace(text, faults.Error(), list, 1)
	case errors.Is(err, context.Canceled) && codeOf(err) == exitFailed:
		text = "interrupted"
	default:
		text = strings.ReplaceAll(text, "shaper: ", "")
	}
	if text != "" {
		fmt.Fprintf(w, "%s: %s\n", program, text)
	}
	return codeOf(err)
}

// wrongUsage explains a fault of a command line and shows the right usage.
func wrongUsage(cmd *cobra.Command, format string, args ...any) error {
	return fail(exitUsage, "%s: %s\nusage: %s\nrun `%s --help` for examples",
		path(cmd), fmt.Sprintf(format, args...), cmd.UseLine(), cmd.CommandPath())
}

// path returns the name of a command without the name of the program, which report adds.
func path(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()))
}

// flagFault describes a wrong flag as our other faults do: the value, and what to use instead.
func flagFault(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok && wrong.GetFlag().Value.Type() == "duration" {
		return wrongUsage(cmd, "--%s %q: want a duration, such as 90s or 2h30m", wrong.GetFlag().Name, wrong.GetValue())
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden {
				names = append(names, "--"+flag.Name)
			}
		})
		return wrongUsage(cmd, "%v%s", err, config.DidYouMean("--"+unknown.GetSpecifiedName(), names))
	}
	return wrongUsage(cmd, "%v", err)
}
