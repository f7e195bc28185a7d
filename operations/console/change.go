package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// Verbs of a changer.
const (
	verbCancel = "cancel"
	verbRetry  = "retry"
)

// changer finds, cancels and retries operations.
type changer struct {
	served    *pages.Namespaces
	index     *index
	scheduler *operations.Scheduler
	log       *slog.Logger
}

// may checks a right on one operation. It returns ErrNothing for a name that no served operation can have.
func (c *changer) may(ctx context.Context, rd *pages.Reader, k cache.Key, verb string) error {
	if !c.served.Serve(k.Namespace) || len(validation.IsDNS1123Subdomain(k.Name)) > 0 {
		return pages.ErrNothing
	}
	a := httpapi.OperationAccess(verb, k.Namespace)
	a.Name = k.Name
	return rd.May(ctx, a)
}

// mayChange checks the rights to change an operation.
func (c *changer) mayChange(ctx context.Context, rd *pages.Reader, k cache.Key) error {
	if err := c.may(ctx, rd, k, "get"); err != nil {
		return err
	}
	return c.may(ctx, rd, k, "update")
}

// find returns an operation from the index, or else from the API server.
func (c *changer) find(ctx context.Context, k cache.Key) (*v1alpha1.Operation, error) {
	if op, ok := c.index.find(k); ok {
		return op, nil
	}
	op, err := c.scheduler.In(k.Namespace).Named(ctx, k.Name)
	if apierrors.IsNotFound(err) || errors.Is(err, operations.ErrNotFound) {
		return nil, pages.ErrNothing
	}
	return op, err
}

// change cancels or retries an operation. The caller has checked mayChange. A non-empty id restricts it to that
// operation. A failed change is a [*pages.Message].
func (c *changer) change(ctx context.Context, rd *pages.Reader, verb string, k cache.Key, id string) error {
	op, err := c.find(ctx, k)
	if err != nil {
		return err
	}
	scheduler := c.scheduler.In(k.Namespace)
	resource := operations.Resource{Type: op.Spec.ResourceType, ID: op.Spec.ResourceID}
	switch {
	case verb == verbCancel:
		_, err = scheduler.Cancel(ctx, resource, id)
	case verb != verbRetry:
		return pages.ErrNothing
	case id != "" && op.EffectiveID() != id:
		err = errors.New("another operation has replaced this one")
	default:
		_, err = scheduler.Retry(ctx, resource)
	}
	if err != nil {
		return &pages.Message{Status: http.StatusConflict, Title: "Nothing was changed", Text: err.Error()}
	}
	c.log.InfoContext(ctx, "an operation was changed on the console", "verb", verb, "operation", k.String(), "user",
		rd.Name())
	return nil
}
