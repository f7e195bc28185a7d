package console

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
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

// operationPage is the page of one operation.
type operationPage struct {
	index    *index
	changes  *changer
	executor *executor.Executor
	explain  explain
	traceURL string
}

func (p *operationPage) page() pages.Page {
	return pages.Page{
		Name: "operation", Title: "Operation", Path: "operations/{namespace}/{name}", Allow: p.mayGet, Data: p.data,
		State: p.index.changes, Shows: shows(v1alpha1.KindOperation),
	}
}

func (p *operationPage) mayGet(ctx context.Context, rd *pages.Reader, r *http.Request) error {
	return p.changes.may(ctx, rd, operationOf(r), "get")
}

func (p *operationPage) data(ctx context.Context, rd *pages.Reader, r *http.Request) (any, error) {
	// The index notifies open pages of changes.
	if err := p.index.wait(ctx); err != nil {
		return nil, err
	}
	op, answer, err := p.snapshot(ctx, rd, operationOf(r))
	if err != nil {
		return nil, err
	}
	d := operationData{
		Path: operationPath(operationOf(r)), Op: op, View: operations.ViewOf(op), Deadline: op.Deadline(),
		Why: answer,
	}
	d.Timeline = timelineOf(op, p.executor.Attempts(ctx, operationOf(r), op.EffectiveID()), time.Now())
	if h, ok := p.executor.Flows().Find(operationOf(r).String()); ok {
		info := h.Info()
		d.Fiber = &info
	}
	if d.Trace = traceOf(op); d.Trace != "" {
		d.TracePath = strings.ReplaceAll(p.traceURL, "{trace}", d.Trace)
	}
	shown := op.DeepCopy()
	shown.ManagedFields = nil
	raw, err := yaml.Marshal(shown)
	if err != nil {
		return nil, fmt.Errorf("cannot show the operation as YAML: %w", err)
	}
	d.YAML = string(bytes.TrimSpace(raw))
	if err := p.changes.may(ctx, rd, operationOf(r), "update"); err == nil {
		d.CanCancel = !op.Terminal() && !op.Spec.CancelRequested
		d.CanRetry = d.View.Status == operations.Failed
	} else if !pages.Refused(err) {
		return nil, err
	}
	return d, nil
}

// maxSnapshots bounds the attempts to get a consistent snapshot of an operation that is ending.
const maxSnapshots = 3

// snapshot returns an operation with the answer to why it makes no progress. Both agree on whether the operation has
// ended. The operation may end while the answer is computed, and the executor knows the end before it is recorded. In
// both cases snapshot tries again. An end that stays unrecorded is not reported.
func (p *operationPage) snapshot(
	ctx context.Context, rd *pages.Reader, k cache.Key,
) (*v1alpha1.Operation, why.Answer, error) {
	for attempt := 1; ; attempt++ {
		answer, err := p.explain(ctx, rd, operationObject(k))
		if err != nil {
			answer = why.Answer{Causes: []why.Cause{}}
		}
		op, err := p.changes.find(ctx, k) // after the answer, so that it is newer
		if err != nil {
			return nil, answer, err
		}
		isEnd := func(c why.Cause) bool { return c.Type == why.Ended }
		ended := slices.ContainsFunc(answer.Causes, isEnd)
		switch {
		case ended == op.Terminal(), op.Terminal() && attempt > 1: // an ended operation may have other causes, too
			return op, answer, nil
		case attempt == maxSnapshots:
			causes := slices.DeleteFunc(answer.Causes, isEnd)
			if len(causes) == 0 {
				causes = []why.Cause{{
					Type: why.Parked, Message: "the operation has ended, and its status is being written", Progress: true,
				}}
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

// action cancels or retries the operation.
func (p *operationPage) action() pages.Action {
	page := p.page()
	page.Allow = func(ctx context.Context, rd *pages.Reader, r *http.Request) error {
		return p.changes.mayChange(ctx, rd, operationOf(r))
	}
	return pages.Action{Path: "operations/{namespace}/{name}/{verb}", Page: page, Do: p.act}
}

func (p *operationPage) act(ctx context.Context, rd *pages.Reader, r *http.Request, a *pages.Answer) error {
	k := operationOf(r)
	err := p.changes.change(ctx, rd, r.PathValue("verb"), k, r.PostFormValue("id"))
	if err == nil {
		a.Redirect(operationPath(k))
	}
	return err
}
