package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/doctor"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) doctorCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "doctor",
		Short: "Examine Redis: is it fit to keep jobs?",
		Long: `Examine the Redis of the configuration: is it reachable and recent, does it keep the
writes that it acknowledged, can it run full, how far is it, and is every job in its
place? Each finding says what to do next. An answer that a managed Redis does not give
is unknown, and no failure. The exit code is 1 if there is a [fail].`,
		Example: `  dispatcher doctor
  dispatcher doctor --json | jq '.checks[] | select(.status != "ok")'`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStation(cmd.Context(), a.doctor)
		},
	})
}

func (a *invocation) doctor(ctx context.Context, s *station) error {
	checks := s.examineAll(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed := 0
	for _, c := range checks {
		if c.Status == doctor.StatusFail {
			failed++
		}
	}
	view := struct {
		Fit    bool           `json:"fit"`
		Checks []doctor.Check `json:"checks"`
	}{failed == 0, checks}
	err := a.print(view, func(w io.Writer) {
		for _, c := range checks {
			fmt.Fprintf(w, "[%s]\t%s\t%s\n", c.Status, c.Name, c.Text)
			if c.Next != "" {
				fmt.Fprintf(w, "\t\t-> %s\n", c.Next)
			}
		}
	})
	if err == nil && failed > 0 {
		return fail(exitFailed, "%s failed", opsview.Count(failed, "check"))
	}
	return err
}

// examineAll makes every check. If Redis does not respond, that is the only finding.
func (s *station) examineAll(ctx context.Context) []doctor.Check {
	if err := s.operator.Ping(ctx); err != nil {
		next := "look at the log of Redis, and try again"
		if isDial(err) {
			next = "start it, or correct redis.url"
		}
		return []doctor.Check{doctor.Bad("redis", next, "%v", s.explain(err))}
	}
	var checks []doctor.Check
	if s.config.Redis.URL.Embedded() {
		checks = append(checks, doctor.Warn("redis", "set redis.url to a real Redis for jobs that matter",
			"the embedded store answers at %s: memory only, all jobs are gone when `dispatcher run` stops", s.config.Redis.EmbeddedListen))
	} else { // the embedded store would not report these
		checks = append(checks, doctor.OK("redis", "answers at %s", s.config.Redis.URL))
		checks = append(checks, doctor.Examine(ctx, s.redis)...)
		checks = append(checks, doctor.ExamineScripts(ctx, s.redis, s.config.Redis.Functions))
	}
	checks = append(checks, doctor.ExamineClock(ctx, s.redis), doctor.ExamineLatency(ctx, s.redis))
	return append(checks, s.examineBuckets(ctx)...)
}

// examineBuckets checks whether every job is in its place: in the list, in later, in flight or dead. There may be more places than jobs, because a
// cancelled job keeps its place in the list, but not fewer.
func (s *station) examineBuckets(ctx context.Context) []doctor.Check {
	views, err := s.api().buckets(ctx)
	if err != nil {
		return []doctor.Check{doctor.Bad("buckets", "see `dispatcher bucket list`", "cannot be looked at: %s", line(s.explain(err).Error(), 120))}
	}
	var checks []doctor.Check
	for _, v := range views {
		name := "bucket " + v.Name
		jobs, places := v.Unfinished+v.Scheduled, v.Waiting+v.Later+v.InFlight
		switch {
		case jobs > places:
			checks = append(checks, doctor.Warn(name, "see to it that a `dispatcher run` has this bucket: its sweeper puts them back within minutes",
				"%s without a place, as a crash of Redis may leave them", opsview.Count(jobs-places, "job")))
		case v.Orphaned && !v.DeliveredElsewhere && jobs+v.Dead > 0:
			checks = append(checks, doctor.Warn(name, "put it back into the configuration until it is empty, or start the program that declares it",
				"orphaned: it left the configuration with %s and %s", opsview.Count(jobs, "job"), opsview.Count(v.Dead, "dead letter")))
		case v.Forgotten > 0:
			checks = append(checks, doctor.Warn(name, "raise dedupe_max or shorten dedupe_window",
				"%s forgotten before the dedupe window ended", opsview.Count(v.Forgotten, "id")))
		default:
			text := fmt.Sprintf("%s, %s", opsview.Count(jobs, "job"), opsview.Count(v.Dead, "dead letter"))
			checks = append(checks, doctor.OK(name, "every job is in its place: %s", strings.Join(append([]string{text}, v.Notes...), "; ")))
		}
	}
	if len(checks) == 0 {
		return []doctor.Check{doctor.Warn("buckets", "declare one as [[buckets]] in the configuration", "there are none")}
	}
	return checks
}
