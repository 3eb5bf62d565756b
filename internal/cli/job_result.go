package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
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
	r := rows{w: w}
	r.text("id", v.ID)
	r.text("group", v.Group)
	r.text("flow", v.Flow)
	r.text("state", string(v.State))
	r.text("status", status(v.Status))
	r.text("dead because", v.Cause)
	r.text("reason", strings.TrimSuffix(v.Reason+": "+v.Detail, ": "))
	r.text("attempts", fmt.Sprint(v.Attempts))
	if v.EnqueuedAt != nil {
		r.text("enqueued", stamp(*v.EnqueuedAt))
	}
	if v.DepartedAt != nil {
		r.text("sent", stamp(*v.DepartedAt)+", answered after "+time.Duration(v.Took*float64(time.Second)).Round(time.Millisecond).String())
	}
	r.headers(v.Headers)
	if v.Cut {
		r.text("cut", "the body had more")
	}
	if v.Body != nil {
		r.text("body", *v.Body)
	} else {
		r.text("body (base64)", base64.StdEncoding.EncodeToString(v.BodyBytes))
	}
}
