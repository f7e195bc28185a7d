package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/why"
)

// operationData is the data of one operation.
type operationData struct {
	Path      string
	Op        *v1alpha1.Operation
	View      operations.View
	Deadline  time.Time
	Timeline  *timeline
	Why       why.Answer
	Fiber     *flow.Info
	YAML      string
	CanCancel bool
	CanRetry  bool
	// Trace is the id of the last trace, and TracePath its URL. Both are empty if unknown.
	Trace, TracePath string
}

// operationOf returns the operation in the path.
func operationOf(r *http.Request) cache.Key {
	return cache.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

// mayGet checks the right to see one operation.
func (c *console) mayGet(ctx context.Context, rd *reader, r *http.Request) error {
	k := operationOf(r)
	if !c.serves(k.Namespace) || len(validation.IsDNS1123Subdomain(k.Name)) > 0 {
		return errNothing
	}
	a := httpapi.OperationAccess("get", k.Namespace)
	a.Name = k.Name
	return rd.may(ctx, a)
}

// find returns an operation from the store, or else from the API server.
func (c *console) find(ctx context.Context, k cache.Key) (*v1alpha1.Operation, error) {
	if op, err := cache.Of[v1alpha1.Operation](c.Operations.Operations).Get(k); err == nil {
		return op, nil
	}
	op, err := c.Operations.Scheduler.In(k.Namespace).Named(ctx, k.Name)
	if apierrors.IsNotFound(err) || errors.Is(err, operations.ErrNotFound) {
		return nil, errNothing
	}
	return op, err
}

func (c *console) operation(ctx context.Context, rd *reader, r *http.Request) (any, error) {
	// The index notifies open pages of changes.
	if err := c.index.look(ctx); err != nil {
		return nil, err
	}
	op, answer, err := c.picture(ctx, rd, operationOf(r))
	if err != nil {
		return nil, err
	}
	now := c.now()
	d := operationData{
		Path: (&row{key: operationOf(r)}).Path(), Op: op, View: operations.ViewOf(op), Deadline: op.Deadline(),
		Why: answer,
	}
	d.Timeline = timelineOf(op, c.Operations.Executor.Attempts(ctx, operationOf(r), op.EffectiveID()), now)
	if h, ok := c.Operations.Executor.Flows().Find(operationOf(r).String()); ok {
		info := h.Info()
		d.Fiber = &info
	}
	if d.Trace = traceOf(op); d.Trace != "" {
		d.TracePath = strings.ReplaceAll(c.TraceURL, "{trace}", d.Trace)
	}
	shown := op.DeepCopy()
	shown.ManagedFields = nil
	raw, err := yaml.Marshal(shown)
	if err != nil {
		return nil, fmt.Errorf("cannot show the operation as YAML: %w", err)
	}
	d.YAML = string(bytes.TrimSpace(raw))
	update := httpapi.OperationAccess("update", op.Namespace)
	update.Name = op.Name
	if err := rd.may(ctx, update); err == nil {
		d.CanCancel = !op.Terminal() && !op.Spec.CancelRequested
		d.CanRetry = d.View.Status == operations.Failed
	} else if !refused(err) {
		return nil, err
	}
	return d, nil
}

// looks bounds the attempts to get a consistent picture of an operation that is ending.
const looks = 3

// picture returns an operation with the answer to why it makes no progress. Both agree on whether the operation has
// ended. The operation may end while the answer is computed, and the executor knows the end before it is recorded. In
// both cases picture tries again. An end that stays unrecorded is not reported.
func (c *console) picture(ctx context.Context, rd *reader, k cache.Key) (*v1alpha1.Operation, why.Answer, error) {
	for look := 1; ; look++ {
		answer, err := c.explain(ctx, rd, operationObject(k))
		if err != nil {
			answer = why.Answer{Causes: []why.Cause{}}
		}
		op, err := c.find(ctx, k) // after the answer, so that it is newer
		if err != nil {
			return nil, answer, err
		}
		isEnd := func(c why.Cause) bool { return c.Type == why.Ended }
		ended := slices.ContainsFunc(answer.Causes, isEnd)
		switch {
		case ended == op.Terminal(), op.Terminal() && look > 1: // an ended operation may have other causes, too
			return op, answer, nil
		case look == looks:
			causes := slices.DeleteFunc(answer.Causes, isEnd)
			if len(causes) == 0 {
				causes = []why.Cause{{Type: why.Parked, Message: "its end is decided, and to be recorded", Progress: true}}
			}
			return op, why.NewAnswer(operationObject(k), causes), nil
		}
	}
}

func operationObject(k cache.Key) why.Object {
	return why.Object{
		Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.KindOperation, Namespace: k.Namespace, Name: k.Name,
	}
}

// traceOf returns the id of the latest trace of an operation, or "".
func traceOf(op *v1alpha1.Operation) string {
	parts := strings.Split(cmp.Or(op.Status.TraceParent, op.Annotations[v1alpha1.AnnotationTraceParent]), "-")
	const fields, length = 4, 32 // version, trace, span, flags
	if len(parts) != fields || len(parts[1]) != length || strings.Trim(parts[1], "0123456789abcdef") != "" {
		return ""
	}
	return parts[1]
}

// Verbs of act.
const (
	verbCancel = "cancel"
	verbRetry  = "retry"
)

func updateOperations(namespace string) httpapi.Access {
	return httpapi.OperationAccess("update", namespace)
}

// act cancels or retries an operation.
func (c *console) act(w http.ResponseWriter, r *http.Request) {
	rd, ok := c.enter(w, r)
	if !ok || !c.fromHere(w, r, rd) {
		return
	}
	k := operationOf(r)
	err := c.do(httpapi.WithClient(r.Context(), r), rd, r.PathValue("verb"), k, r.PostFormValue("id"))
	refusal := (*notDone)(nil)
	switch {
	case err == nil:
		http.Redirect(w, r, (&row{key: k}).Path(), http.StatusSeeOther)
	case errors.As(err, &refusal):
		c.message(w, r, rd, http.StatusConflict, "That was not done", err.Error())
	default:
		c.fail(w, r, rd, err)
	}
}

// notDone is the reason why an authorized change of an operation failed.
type notDone struct{ error }

func (e *notDone) Unwrap() error { return e.error }

var errFollowed = &notDone{errors.New("another operation has taken its place")}

// do cancels or retries an operation if the reader may. A non-empty id restricts it to that operation.
func (c *console) do(ctx context.Context, rd *reader, verb string, k cache.Key, id string) error {
	if !c.serves(k.Namespace) || len(validation.IsDNS1123Subdomain(k.Name)) > 0 {
		return errNothing
	}
	for _, a := range []httpapi.Access{httpapi.OperationAccess("get", k.Namespace), updateOperations(k.Namespace)} {
		a.Name = k.Name
		if err := rd.may(ctx, a); err != nil {
			return err
		}
	}
	op, err := c.find(ctx, k)
	if err != nil {
		return err
	}
	scheduler := c.Operations.Scheduler.In(k.Namespace)
	resource := operations.Resource{Type: op.Spec.ResourceType, ID: op.Spec.ResourceID}
	switch {
	case verb == verbCancel:
		_, err = scheduler.Cancel(ctx, resource, id)
	case verb != verbRetry:
		return errNothing
	case id != "" && op.EffectiveID() != id:
		return errFollowed
	default:
		_, err = scheduler.Retry(ctx, resource)
	}
	if err != nil {
		return &notDone{err}
	}
	c.log.InfoContext(ctx, "an operation was changed on the console", "verb", verb, "operation", k.String(), "user", rd.name)
	return nil
}
