package op

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

type scheduleOptions struct {
	operations.Request
	kind, object   string
	headers        map[string]string
	related, lock  []string
	ttl            time.Duration
	parallel, wait bool
}

func newScheduleCommand(s cli.Streams, o *options) *cobra.Command {
	var so scheduleOptions
	cmd := &cobra.Command{
		Use:   "schedule TYPE/ID --type Create|Update|Delete [flags]",
		Short: "Schedule an operation",
		Long: `Schedule creates an operation. The controller calls the webhooks, which are objects of kind Webhook in the
namespace, in the given order. A resource has at most one unfinished operation. Without a webhook the operation succeeds
at once. If a webhook does not exist, the operation waits for it until the timeout.`,
		Example: `  fairlead op schedule Application/shop --type Delete --category unregisterApplication --webhook cleanup --wait
  fairlead op schedule Application/shop --type Create --webhook a --webhook b --parallel --object '{"name":"shop"}'`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if so.Resource, err = cli.OperationResource(args); err != nil {
				return err
			}
			if err := so.complete(cmd); err != nil {
				return err
			}
			return o.withScheduler(func(scheduler *operations.Scheduler) error {
				op, err := scheduler.Schedule(cmd.Context(), so.Request)
				if err != nil {
					return err
				}
				if so.wait {
					return awaitOperation(cmd.Context(), s, o,
						func(ctx context.Context, progress func(operations.View)) (operations.View, error) {
							return scheduler.WaitFor(ctx, op, progress)
						})
				}
				return show(s.Out, o.output, operations.ViewOf(op))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&so.kind, "type", "",
		"`kind` of operation on the resource: Create, Update or Delete (required)")
	f.StringVar(&so.ID, "id", "",
		"`id` of this operation; a repeated request with the same id starts nothing twice (default: a new id)")
	f.StringVar(&so.Category, "category", "", "`name` that groups operations of one kind")
	f.StringVar(&so.CorrelationID, "correlation-id", "", "correlation `id` that is sent with every call")
	f.StringArrayVar(&so.Webhooks, "webhook", nil, "`name` of a Webhook to call; may be repeated, in order")
	f.StringArrayVar(&so.Compensate, "compensate", nil, "`name` of a Webhook to call after a failure; may be repeated")
	f.StringVar(&so.Notify, "notify", "", "`name` of a Webhook to call with the outcome")
	f.StringArrayVar(&so.related, "related", nil, "`TYPE/ID` of a related resource; may be repeated")
	f.StringArrayVar(&so.lock, "lock", nil,
		"`TYPE/ID` of a related resource that is locked for other operations until the end; may be repeated")
	f.BoolVar(&so.parallel, "parallel", false, "call the webhooks in parallel")
	f.StringVar(&so.object, "object", "", "`JSON`, or @file, available to templates as .Resource")
	f.StringVar(&so.TenantID, "tenant", "", "`tenant` on whose behalf it runs")
	f.StringToStringVar(&so.headers, "header", nil,
		"`name=value` available to templates under .Headers; may be repeated")
	f.Lookup("header").DefValue = "" // pflag shows an empty map as []
	f.DurationVar(&so.Timeout, "timeout", v1alpha1.DefaultTimeout, "timeout of the whole operation")
	f.DurationVar(&so.ttl, "ttl", 0, "delete the Operation this long after its end (default: keep it)")
	f.BoolVar(&so.wait, "wait", false, "wait for the end and show progress")
	return cmd
}

func (so *scheduleOptions) complete(cmd *cobra.Command) error {
	so.Type = v1alpha1.OperationType(so.kind)
	so.Headers = so.headers
	if so.parallel {
		so.Execution = operations.Parallel
	}
	if cmd.Flags().Changed("timeout") && so.Timeout == 0 {
		return cli.Usagef("--timeout must be a duration above zero, such as 30s or 2h")
	}
	if cmd.Flags().Changed("ttl") {
		so.TTLAfterFinished = &so.ttl
	}
	for _, flag := range []struct {
		name  string
		texts []string
		to    *[]operations.Resource
	}{{"related", so.related, &so.Related}, {"lock", so.lock, &so.Lock}} {
		for _, text := range flag.texts {
			r, err := cli.OperationResource([]string{text})
			if err != nil {
				return cli.Usagef("--%s %q is not of the form TYPE/ID", flag.name, text)
			}
			*flag.to = append(*flag.to, r)
		}
	}
	if so.object != "" {
		raw := []byte(so.object)
		if file, ok := strings.CutPrefix(so.object, "@"); ok {
			var err error
			if raw, err = os.ReadFile(file); err != nil {
				return cli.Usagef("cannot read --object: %v", err)
			}
		}
		if !json.Valid(raw) {
			return cli.Usagef("--object is not JSON")
		}
		so.Object = json.RawMessage(raw)
	}
	var invalid *operations.InvalidError
	if _, err := so.Spec(); errors.As(err, &invalid) {
		var all []string
		for _, f := range invalid.Fields {
			all = append(all, strings.TrimPrefix(f.Field, "spec.")+" "+f.Problem)
		}
		return cli.Usagef("%s", strings.Join(all, "; "))
	}
	return nil
}
