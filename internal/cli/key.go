package cli

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/config"
)

func (a *invocation) keyCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "key",
		Short: "Make API keys",
		Long: `Make API keys. The configuration holds only their hashes, in [[keys]]. To revoke a key,
remove its table. These commands do not talk to a server.`,
		Example: a.examples(`  producer key new billing --role enqueue --bucket webhooks`),
	}, a.keyNewCommand())
}

func (a *invocation) keyNewCommand() *cobra.Command {
	var key apikey.Key
	var roles []string
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "new NAME",
		Short: "Make a key: its secret, and the table for the configuration",
		Long: `Make an API key. The secret goes to stdout, once: it is stored nowhere, and the
configuration has only its SHA-256. The table to paste into the configuration goes to
stderr, with comments in TOML; with --json both are on stdout.

Roles: enqueue puts jobs into the key's buckets, looks at a job by its id and cancels
it; check asks limits; read looks at everything, metrics too; operate pauses, resumes,
drains and redrives, so that no job is lost and no setting changed; admin may do all
that and change limits, buckets and pools. Limits count jobs by the key's
caller, which is its name unless --caller names another one.

To replace a secret, make a new one and add its sha256 to the old one:
sha256 = ["old", "new"]. Remove the old one when all clients send the new one.`,
		Example: a.examples(`  producer key new billing --role enqueue --bucket webhooks
  producer key new acme --role enqueue --bucket webhooks --flow acme
  producer key new gateway --role check --tier pro
  producer key new prometheus --role read > prometheus.key
  producer key new root --role admin --bucket '*' --json`),
		Args: positional("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			key.Name = args[0]
			for _, role := range roles {
				key.Roles = append(key.Roles, apikey.Role(role))
			}
			return a.newKey(cmd, key)
		},
	})
	f := cmd.Flags()
	f.StringSliceVar(&roles, "role", nil, "`role` of the key: enqueue, check, read, operate or admin; may be repeated")
	f.StringSliceVar(&key.Buckets, "bucket", nil, "`name` of a bucket that the key is for, or '*' for all; may be repeated")
	f.StringArrayVar(&key.Flows, "flow", nil, "`name` of a flow that the key may enqueue into, and into no other; may be repeated (default: all)")
	f.StringArrayVar(&key.Groups, "group", nil, "`name` of a group that the key may enqueue into, and into no other; may be repeated (default: all)")
	f.StringVar(&key.Caller, "caller", "", "caller of the jobs that the key enqueues, a `name` (default: the key's name)")
	f.StringVar(&key.Tier, "tier", "", "which of the limits' tiers applies, a `name`")
	return cmd
}

// keyView is a new key as --json shows it.
type keyView struct {
	Name    string        `json:"name"`
	Caller  string        `json:"caller,omitempty"`
	Secret  string        `json:"secret"`
	SHA256  string        `json:"sha256"`
	Roles   []apikey.Role `json:"roles"`
	Buckets []string      `json:"buckets"`
	Flows   []string      `json:"flows,omitempty"`
	Groups  []string      `json:"groups,omitempty"`
	Tier    string        `json:"tier,omitempty"`
	TOML    string        `json:"toml"`
}

func (a *invocation) newKey(cmd *cobra.Command, key apikey.Key) error {
	if err := config.CheckKey(key); err != nil {
		return wrongUsage(cmd, "%s", indented(err))
	}
	secret, sum := apikey.NewSecret()
	key.SHA256 = [][32]byte{sum}
	var table strings.Builder
	if err := config.WriteKey(&table, key); err != nil {
		return err
	}
	if a.json {
		return writeJSON(a.out, keyView{
			Name: key.Name, Caller: key.Caller, Secret: secret, SHA256: hex.EncodeToString(sum[:]), Roles: key.Roles,
			Buckets: append([]string{}, key.Buckets...), Flows: key.Flows, Groups: key.Groups, Tier: key.Tier, TOML: table.String(),
		})
	}
	a.note("# The secret, shown this once; send it as \"Authorization: Bearer …\", or give it to clients as TUNDISH_KEY:")
	if _, err := fmt.Fprintln(a.out, secret); err != nil {
		return err
	}
	a.note("\n# For the configuration, on every producer and dispatcher:\n\n%s", table.String())
	return nil
}
