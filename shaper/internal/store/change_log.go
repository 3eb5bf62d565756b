package store

import (
	"context"
	"slices"

	"github.com/tundish-io/tundish/shaper"
)

// logOwnChange logs how this process has just changed the effective settings.
func (s *Store) logOwnChange(ctx context.Context, kind, name, key string) {
	record, err := s.Redis.HGet(ctx, key, fieldChanges).Result()
	if err != nil {
		return // the settings are written; the other processes log it
	}
	list := readChanges("", record)
	if i := slices.IndexFunc(list, func(c shaper.SettingsChange) bool { return c.By == s.By && c.Action == "" }); i >= 0 {
		s.Log.With(kind, name).WarnContext(ctx, "this process changed the settings in force", changeAttributes(list[i])...)
	}
}

// changeAttributes returns the log attributes of a change.
func changeAttributes(c shaper.SettingsChange) []any {
	args := []any{"changes", ChangesText(c.Changes), "by", c.By}
	if c.Action != "" {
		args = append(args, "action", c.Action)
	}
	return append(args, "at", c.At)
}
