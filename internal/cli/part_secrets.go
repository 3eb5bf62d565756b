package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// ownDelivery holds the flags of `flow set` for a flow's own delivery settings.
type ownDelivery struct {
	headers, secrets, add, remove []string
}

func (o *ownDelivery) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.headers, "header", nil, "`\"Name: value\"` sent with its deliveries; may be repeated; replaces all headers it had")
	cmd.Flags().StringArrayVar(&o.secrets, "secret", nil, "`source` of a secret that signs its deliveries: env:VARIABLE, file:/path or - for standard input; may be repeated; replaces all secrets it had")
	cmd.Flags().StringArrayVar(&o.add, "add-secret", nil, "`source` of a secret that signs its deliveries beside those it has, 8 at most; becomes number 1; may be repeated")
	cmd.Flags().StringArrayVar(&o.remove, "remove-secret", nil, "`number` or fingerprint, as flow show has them, of a secret that signs no longer; may be repeated")
}

// ownDelivery checks these flags and puts them into the body of a patch, except the secrets to remove.
func (p *parts[N, V, P]) ownDelivery(cmd *cobra.Command, own *ownDelivery, patch *operator.FlowPatch, body map[string]any) error {
	if len(own.secrets) > 0 && len(own.add)+len(own.remove) > 0 {
		return wrongUsage(cmd, "--secret replaces all secrets: give it without --add-secret and --remove-secret")
	}
	values := secrets{app: p.invocation}
	given, err := values.single(cmd, own.headers)
	if err != nil {
		return err
	}
	if given != nil {
		if err := patch.PutHeaders(given); err != nil {
			return wrongUsage(cmd, "--header: %v", strings.TrimPrefix(err.Error(), string(shaper.FlowHeaders)+": "))
		}
		body[string(shaper.FlowHeaders)] = given
	}
	for _, f := range []struct {
		flag, field string
		sources     []string
		put         func([]string) error
	}{
		{"--secret", string(shaper.FlowSecrets), own.secrets, patch.PutSecrets},
		{"--add-secret", operator.AddSecrets, own.add, patch.AddSecrets},
	} {
		if len(f.sources) == 0 {
			continue
		}
		list, err := values.list(cmd, f.flag, f.sources)
		if err != nil {
			return err
		}
		if err := f.put(list); err != nil {
			return wrongUsage(cmd, "%s: %v", f.flag, strings.TrimPrefix(err.Error(), f.field+": "))
		}
		body[f.field] = list
	}
	return nil
}

// nameRemoved puts the fingerprints of the secrets to remove into the body of a patch. It resolves numbers to fingerprints, so that a repeated patch
// removes no other secret.
func (p *parts[N, V, P]) nameRemoved(cmd *cobra.Command, args []string, own *ownDelivery, body map[string]any) error {
	var known *opsview.Settings
	prints := make([]string, 0, len(own.remove))
	for _, text := range own.remove {
		n, err := strconv.Atoi(text)
		if err != nil || len(text) == 2*shaper.FingerprintBytes {
			var patch operator.FlowPatch
			if patch.RemoveSecrets([]string{text}) != nil {
				return wrongUsage(cmd, "--remove-secret: %q: want the number of a secret or its fingerprint, as `%s flow show` has them", line(text, 40), p.program)
			}
			prints = append(prints, text)
			continue
		}
		if known == nil {
			if known, err = p.shownSettings(cmd, args[0], args[1]); err != nil {
				return err
			}
		}
		if n < 1 || n > len(known.SecretFingerprints) {
			return wrongUsage(cmd, "--remove-secret: %d: flow %s has %s of its own", n, quoted(args[1]), secretsText(known))
		}
		prints = append(prints, known.SecretFingerprints[n-1])
	}
	if len(prints) > 0 {
		body[operator.RemoveSecrets] = prints
	}
	return nil
}

// shownSettings returns the own settings of a flow or a group.
func (p *parts[N, V, P]) shownSettings(cmd *cobra.Command, bucket, name string) (*opsview.Settings, error) {
	var view *V
	err := p.withAPI(cmd.Context(), func(ctx context.Context, c *api) (err error) {
		view, err = call(ctx, c, p.ops.Show, p.of(bucket, name, p.groupOf(cmd)))
		return p.fault(err, bucket, name)
	})
	if err != nil {
		return nil, err
	}
	own := P(view).Own()
	return &own, nil
}
