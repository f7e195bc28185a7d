package op

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// options holds the flags of all operation commands.
type options struct {
	cli.Connection
	namespace string
	output    string
}

func (o *options) scheduler() (*operations.Scheduler, error) {
	switch o.output {
	case "", "table", "json", "yaml":
	default:
		return nil, cli.Usagef("unknown output format %q: use json, yaml or table", o.output)
	}
	config, namespace, err := o.Config()
	if err != nil {
		return nil, err
	}
	if o.namespace != "" {
		namespace = o.namespace
	}
	return operations.NewScheduler(operations.Options{Config: config, Namespace: namespace})
}

// withScheduler calls do with a scheduler, and adds advice to its error.
func (o *options) withScheduler(do func(*operations.Scheduler) error) error {
	scheduler, err := o.scheduler()
	if err != nil {
		return err
	}
	defer scheduler.Close()
	return withAdvice(do(scheduler), scheduler)
}

// withResource is withScheduler with the resource in the arguments.
func (o *options) withResource(args []string, do func(*operations.Scheduler, operations.Resource) error) error {
	r, err := cli.OperationResource(args)
	if err != nil {
		return err
	}
	return o.withScheduler(func(scheduler *operations.Scheduler) error { return do(scheduler, r) })
}

// withOperation calls do with the operation of the resource in the arguments.
func (o *options) withOperation(ctx context.Context, args []string, do func(*v1alpha1.Operation) error) error {
	return o.withResource(args, func(scheduler *operations.Scheduler, r operations.Resource) error {
		op, err := scheduler.Get(ctx, r)
		if err != nil {
			return err
		}
		return do(op)
	})
}

// withAdvice adds advice to common errors.
func withAdvice(err error, s *operations.Scheduler) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "could not find the requested resource"),
		strings.Contains(err.Error(), "404 page not found"),
		strings.Contains(err.Error(), "does not serve this resource"):
		return fmt.Errorf("the cluster has no Operations yet: fairlead crds | kubectl apply --server-side -f - (%w)",
			err)
	case errors.Is(err, operations.ErrNotFound):
		return fmt.Errorf("%w in namespace %s", err, s.Namespace())
	default:
		return err
	}
}
