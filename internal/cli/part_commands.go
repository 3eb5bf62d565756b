package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

// flowParts are the commands on flows.
type flowParts = parts[httpapi.FlowName, opsview.Flow, *opsview.Flow]

func (a *invocation) flowCommand() *cobra.Command {
	var failing bool
	var sorted, match string
	var look int
	p := &flowParts{
		listHelp: ` unless it is asked for.
With --failing, only flows are listed whose receiver keeps them from sending (disabled, held, or with a circuit breaker that
is not closed), or fails: its last answer was a 5xx, a timeout or no connection. A receiver that answers 401, 403 or 404
works: "job list BUCKET --state retrying" shows such jobs with their flows. With --sort waiting, those with the most waiting
jobs come first, and those without any are left out.`,
		listExample: `
  dispatcher flow list webhooks --failing
  dispatcher flow list webhooks --sort waiting --limit 20`,
		narrowed: func() string {
			if sorted != "" && !failing && match == "" {
				return "with waiting jobs"
			}
			if failing || sorted != "" || match != "" {
				return "that is as the flags ask"
			}
			return ""
		},
		listFlags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&failing, "failing", false, "only flows whose receiver fails (5xx, timeout, no connection) or keeps them from sending")
			cmd.Flags().StringVar(&match, "match", "", "only flows that have this `text` in their name")
			cmd.Flags().IntVar(&look, "look", 0, "with --sort: of so `many` flows alone, the next ones (default: of all)")
			cmd.Flags().StringVar(&sorted, "sort", "", "waiting, an `order`: the most waiting jobs first, and only flows with waiting jobs")
		},
		invocation: a, kind: "flow", settings: shaper.FlowSettingNames(), ops: httpapi.FlowOperations,
		of: func(bucket, name string, group *string) httpapi.FlowName {
			return httpapi.FlowName{BucketName: httpapi.BucketName{Bucket: bucket}, Flow: name, Group: group}
		},
		page: func(ctx context.Context, c *api, bucket string, group *string, page httpapi.PartPage) ([]*opsview.Flow, string, error) {
			list, err := call(ctx, c, httpapi.ListFlows, httpapi.FlowQuery{BucketName: httpapi.BucketName{Bucket: bucket}, PartPage: page, Group: group, Q: match, Failing: failing, Sort: sorted, Look: look})
			if err != nil {
				return nil, "", err
			}
			return list.Flows, list.Next, nil
		},
	}
	return a.serverFlags(group(&cobra.Command{
		Use:   "flow",
		Short: "Look at the flows of a bucket, pause, change or purge one",
		Long: `Look at the flows of a bucket. A flow is the jobs of one key, such as a tenant or a
receiving host. Pause a flow, give it settings of its own, or purge it, while the others
run. All processes obey at once, and after every restart. The name of a flow may be
any text. In a bucket with groups, --group names the flow's group. A bucket has flows where
it is configured with [buckets.flow].`,
		Example: `  dispatcher flow list webhooks
  dispatcher flow show webhooks acme
  dispatcher flow pause webhooks acme --reason "their server is down"
  dispatcher flow set webhooks acme --rate 5/s --weight 2
  dispatcher flow reset webhooks acme
  dispatcher flow release webhooks acme
  dispatcher flow enable webhooks acme --redrive
  dispatcher flow import webhooks customers.ndjson
  dispatcher flow show webhooks hooks.acme.example --group acme`,
	}, append(p.commands(flowReleaseCommand(p), flowEnableCommand(p), flowRemoveCommand(p)), a.flowImportCommand())...))
}

func (a *invocation) groupCommand() *cobra.Command {
	p := &parts[httpapi.GroupName, opsview.Group, *opsview.Group]{
		listHelp:   ".",
		invocation: a, kind: "group", settings: shaper.GroupSettingNames(), ops: httpapi.GroupOperations,
		of: func(bucket, name string, _ *string) httpapi.GroupName {
			return httpapi.GroupName{BucketName: httpapi.BucketName{Bucket: bucket}, Group: name}
		},
		page: func(ctx context.Context, c *api, bucket string, _ *string, page httpapi.PartPage) ([]*opsview.Group, string, error) {
			list, err := call(ctx, c, httpapi.ListGroups, httpapi.GroupQuery{BucketName: httpapi.BucketName{Bucket: bucket}, PartPage: page})
			if err != nil {
				return nil, "", err
			}
			return list.Groups, list.Next, nil
		},
	}
	return a.serverFlags(group(&cobra.Command{
		Use:   "group",
		Short: "Look at the groups of a bucket's flows, pause, change or purge one",
		Long: `Look at the groups of a bucket. A group is the flows of one key, such as a tenant over
its endpoints. Pause a group, give it settings of its own, or purge it, while the others
run. All processes obey at once, and after every restart. The name of a group may be any
text. ` + "`dispatcher flow list BUCKET --group GROUP`" + ` lists its flows. A bucket has groups where it
is configured with [buckets.group].`,
		Example: `  dispatcher group list webhooks
  dispatcher group show webhooks acme
  dispatcher group pause webhooks acme --reason "they have not paid"
  dispatcher group set webhooks acme --rate 100/m --weight 2
  dispatcher group reset webhooks acme`,
	}, p.commands()...))
}

// commands returns the commands that flows and groups have in common, and more.
func (p *parts[N, V, P]) commands(more ...*cobra.Command) []*cobra.Command {
	list := append([]*cobra.Command{
		p.listCommand(), p.showCommand(), p.pauseCommand(), p.resumeCommand(), p.setCommand(), p.resetCommand(), p.purgeCommand(),
	}, more...)
	for _, cmd := range list {
		p.jsonFlag(cmd)
		if p.kind == "flow" {
			cmd.Flags().StringVar(&p.group, "group", "", "`name` of the group in which the flow is, where the bucket has groups")
		}
	}
	return list
}

func (p *parts[N, V, P]) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show BUCKET " + p.arg(),
		Short: p.text("Show one $"),
		Long:  p.text("Show one $: its waiting jobs, what keeps it from sending, and the settings that it has of its own."),
		Example: p.text(`  dispatcher $ show webhooks acme
  dispatcher $ show webhooks acme --json`),
		Args: positional("BUCKET", p.arg()),
	}
	cmd.RunE = onPart(p, p.ops.Show, p.just, nil)
	return cmd
}
