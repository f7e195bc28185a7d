package op

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func newWaitCommand(s cli.Streams, o *options) *cobra.Command {
	var id string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "wait TYPE/ID", Short: "Wait for the end of an operation",
		Long: "Wait shows the progress of an operation until it ends. " +
			"The exit code is 0 when it succeeded, 1 when it failed.",
		Example: `  fairlead op wait Application/shop
  fairlead op wait Application/shop --id 6f1c --timeout 5m -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return cli.Usagef("--timeout must not be negative; omit it to wait without a limit")
			}
			ctx := cmd.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it has not ended after %v", timeout))
				defer cancel()
			}
			return o.withResource(args, func(scheduler *operations.Scheduler, r operations.Resource) error {
				if err := awaitExistence(ctx, scheduler, r); err != nil {
					return err
				}
				return awaitOperation(ctx, s, o,
					func(ctx context.Context, progress func(operations.View)) (operations.View, error) {
						return scheduler.Wait(ctx, r, id, progress)
					})
			})
		},
	}
	cmd.Flags().StringVar(&id, "id", "",
		"`id` of the operation; needed if it may not exist yet or a later one may exist")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this time (default: never)")
	return cmd
}

// maxOutboxDelay bounds the delay until an operation is written: services with an outbox answer before that.
const maxOutboxDelay = 5 * time.Second

// awaitExistence waits until a resource has an operation.
func awaitExistence(ctx context.Context, scheduler *operations.Scheduler, r operations.Resource) error {
	deadline := time.After(maxOutboxDelay)
	for {
		_, err := scheduler.Get(ctx, r)
		if !errors.Is(err, operations.ErrNotFound) {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitOperation shows progress until an operation ends: as an updated line on a terminal, else one line per change.
func awaitOperation(ctx context.Context, s cli.Streams, o *options,
	wait func(context.Context, func(operations.View)) (operations.View, error),
) error {
	width, _, tty := cli.Terminal(s.Err)
	last := ""
	v, err := wait(ctx, func(v operations.View) {
		line := cli.Plain(progressLine(v))
		switch {
		case line == last:
		case tty:
			_, _ = fmt.Fprintf(s.Err, "\r\x1b[2K%s", cli.Cut(line, width))
		default:
			cli.Say(s.Err, "%s", line)
		}
		last = line
	})
	if tty && last != "" {
		_, _ = fmt.Fprint(s.Err, "\r\x1b[2K")
	}
	if err != nil {
		return err
	}
	if o.output == "json" || o.output == "yaml" {
		err = cli.Encode(s.Out, o.output, v)
	} else {
		cli.Say(s.Out, "%s", cli.Plain(endLine(v)))
	}
	if err == nil && v.Status == operations.Failed {
		err = &cli.ExitError{Code: cli.ExitFailure}
	}
	return err
}

func progressLine(v operations.View) string {
	line := fmt.Sprintf("%s/%s: %s in progress, %d of %d webhooks done", v.ResourceType, v.ResourceID, v.OperationType,
		v.Progress.Completed, v.Progress.Total)
	if v.Waiting != "" {
		line += "; " + v.Waiting
	}
	for _, w := range v.Webhooks {
		if w.State != v1alpha1.PhaseInProgress {
			continue
		}
		line += fmt.Sprintf("; %s: try %d", w.WebhookID, w.RetriesCount+1)
		if w.WebhookPollURL != "" {
			line += ", polling"
		}
		if w.Message != "" {
			line += ", " + w.Message
		}
		if w.NextAttemptAt != nil {
			line += ", next at " + w.NextAttemptAt.Local().Format(time.TimeOnly)
		}
	}
	return line
}

func endLine(v operations.View) string {
	took := ""
	if v.FinishedAt != nil && !v.CreatedAt.IsZero() {
		took = " after " + v.FinishedAt.Sub(v.CreatedAt).Round(time.Millisecond).String()
	}
	if v.Status == operations.Succeeded {
		return fmt.Sprintf("%s/%s: %s: Success%s", v.ResourceType, v.ResourceID, v.OperationType, took)
	}
	return fmt.Sprintf("%s/%s: %s: Failed%s: %s: %s", v.ResourceType, v.ResourceID, v.OperationType, took, v.Reason,
		v.Error)
}
