package telemetry

import (
	"io"
	"log/slog"

	"golang.org/x/term"
)

// NewLogger returns a logger that writes to w. Level is debug, info, warn or error; format is text, json, or auto: text on a terminal, JSON elsewhere.
// Unknown values mean info and auto: the configuration has validated them. Durations are written as "1.5s" in both formats.
func NewLogger(level, format string, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: levelOf(level), ReplaceAttr: readable}
	if format == "text" || format != "json" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

func levelOf(name string) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return slog.LevelInfo
	}
	return level
}

func readable(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() == slog.KindDuration {
		attr.Value = slog.StringValue(attr.Value.Duration().String())
	}
	return attr
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}
