package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
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
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) doctor(ctx context.Context, s *station) error {
	checks := s.examineAll(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed := 0
	for _, c := range checks {
		if c.Status == statusFail {
			failed++
		}
	}
	view := struct {
		Fit    bool    `json:"fit"`
		Checks []check `json:"checks"`
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
		return fail(exitFailed, "%s failed", count(failed, "check"))
	}
	return err
}

// examineAll makes every check there is. When Redis does not answer, that is
// the only finding.
func (s *station) examineAll(ctx context.Context) []check {
	if err := s.operator.Ping(ctx); err != nil {
		next := "look at the log of Redis, and try again"
		if isDial(err) {
			next = "start it, or correct redis.url"
		}
		return []check{bad("redis", next, "%v", s.explain(err))}
	}
	checks := []check{ok("redis", "answers at %s", s.config.Redis.URL)}
	if s.config.Redis.URL.Embedded() {
		checks = []check{warn("redis", "set redis.url to a real Redis for jobs that matter",
			"the embedded store answers at %s: memory only, all jobs are gone when `dispatcher run` stops", s.config.Redis.EmbeddedListen)}
	}
	checks = append(checks, examine(ctx, s.redis)...)
	checks = append(checks, examineClock(ctx, s.redis), examineLatency(ctx, s.redis), examineScripts(ctx, s.redis, s.config.Redis.Functions))
	return append(checks, s.examineBuckets(ctx)...)
}
