package opsview

import (
	"fmt"
	"time"

	"github.com/tundish-io/tundish/shaper"
)

// Pause is the pause of a bucket, a group or a flow.
type Pause struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
}

// Disabled says when and why a flow was disabled.
type Disabled struct {
	Since time.Time `json:"since"`

	// Of the response that disabled it, one word.
	Reason string `json:"reason,omitempty"`
}

// DisabledOf shows it: nil of a flow that is not disabled.
func DisabledOf(d *shaper.Disabled) *Disabled {
	if d == nil {
		return nil
	}
	return &Disabled{Since: d.Since.UTC(), Reason: d.Reason}
}

// PauseOf returns the view of a pause: nil if it is not paused.
func PauseOf(pause *shaper.Pause) *Pause {
	if pause == nil {
		return nil
	}
	return &Pause{Since: pause.Since.UTC(), By: pause.By, Reason: pause.Reason}
}

// Text describes a pause in one line, safe to show.
func (p *Pause) Text(now time.Time) string {
	text := fmt.Sprintf("paused %s by %s", Relative(p.Since, now), p.By)
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return Line(text, 200)
}
