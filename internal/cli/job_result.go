package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

func (a *invocation) jobResultCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "result BUCKET ID",
		Short: "Show how a job ended, and what was answered",
		Long: `Show how a job ended, done or dead, and what was answered to its last attempt. The bucket
keeps that for result_retention. Before the end, and where nothing is kept, the exit code is 4.`,
		Example: `  dispatcher job result crm order-17
  dispatcher job result crm order-17 --json | jq -r .body`,
		Args: positional("BUCKET", "ID"),
		RunE: a.onJob(func(ctx context.Context, c *api, bucket, id string) error {
			view, err := call(ctx, c, httpapi.ShowResult, theJob(bucket, id))
			if err != nil {
				return err
			}
			return a.print(view, func(w io.Writer) { printResult(w, view) })
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

func printResult(w io.Writer, v *opsview.Result) {
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, line(value, 2000))
		}
	}
	row("id", v.ID)
	row("group", v.Group)
	row("flow", v.Flow)
	row("state", string(v.State))
	row("status", status(v.Status))
	row("dead because", v.Cause)
	row("reason", strings.TrimSuffix(v.Reason+": "+v.Detail, ": "))
	row("attempts", fmt.Sprint(v.Attempts))
	if v.EnqueuedAt != nil {
		row("enqueued", stamp(*v.EnqueuedAt))
	}
	if v.DepartedAt != nil {
		row("sent", stamp(*v.DepartedAt)+", answered after "+time.Duration(v.Took*float64(time.Second)).Round(time.Millisecond).String())
	}
	for _, name := range slices.Sorted(maps.Keys(v.Headers)) {
		for _, value := range v.Headers[name] {
			row("header", name+": "+value)
		}
	}
	if v.Cut {
		row("cut", "the body had more")
	}
	if v.Body != nil {
		row("body", *v.Body)
	} else {
		row("body (base64)", base64.StdEncoding.EncodeToString(v.BodyBytes))
	}
}
