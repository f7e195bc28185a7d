package operation

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
)

// Get returns the Operation of a resource, [ErrNotFound] if there is none.
func (s *Scheduler) Get(ctx context.Context, r Resource) (*v1alpha1.Operation, error) {
	op, err := s.read(ctx, v1alpha1.OperationName(r.Type, r.ID))
	if err != nil {
		return nil, fmt.Errorf("cannot get operation of %s: %w", r, err)
	}
	if op == nil {
		return nil, fmt.Errorf("cannot get operation of %s: %w", r, ErrNotFound)
	}
	return op, nil
}

// Query says which Operations List returns. Empty fields restrict nothing.
type Query struct {
	// ResourceType restricts to one type of resources.
	ResourceType string
	// Phase restricts to one phase.
	Phase v1alpha1.Phase
	// Related restricts to operations that touch this resource too. It is applied to what a page holds, so pages may be
	// short or empty.
	Related Resource
	// Limit is how many Operations a page has. Default: those of package call.
	Limit int64
	// Continue is the token of the page before.
	Continue string
}

func (q Query) values() url.Values {
	values := url.Values{}
	selector := fields.Set{}
	if q.ResourceType != "" {
		selector["spec.resourceType"] = q.ResourceType
	}
	if q.Phase != "" {
		selector["status.phase"] = string(q.Phase)
	}
	if len(selector) > 0 {
		values.Set("fieldSelector", selector.AsSelector().String())
	}
	if q.Limit > 0 {
		values.Set("limit", strconv.FormatInt(q.Limit, 10))
	}
	if q.Continue != "" {
		values.Set("continue", q.Continue)
	}
	return values
}

// Page returns one page of Operations; its Continue is empty on the last one.
func (s *Scheduler) Page(ctx context.Context, q Query) (*v1alpha1.OperationList, error) {
	answer, err := call.Do(ctx, s.calls, call.Request{
		Verb: call.VerbList, Resource: operations, Kind: "Operation", Namespace: s.namespace, Query: q.values(),
	}, s.policy)
	if err != nil {
		return nil, fmt.Errorf("cannot list operations: %w", err)
	}
	list := &v1alpha1.OperationList{}
	if err := answer.Into(list); err != nil {
		return nil, fmt.Errorf("cannot list operations: %w", err)
	}
	if q.Related != (Resource{}) {
		list.Items = slices.DeleteFunc(list.Items, func(op v1alpha1.Operation) bool {
			return !op.Touches(v1alpha1.ResourceReference{ResourceType: q.Related.Type, ResourceID: q.Related.ID})
		})
	}
	return list, nil
}

// List returns all Operations of the query, page by page as they are asked for.
func (s *Scheduler) List(ctx context.Context, q Query) iter.Seq2[*v1alpha1.Operation, error] {
	if q.Limit <= 0 {
		q.Limit = call.CachePage
	}
	return func(yield func(*v1alpha1.Operation, error) bool) {
		for {
			page, err := s.Page(ctx, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Items {
				if !yield(&page.Items[i], nil) {
					return
				}
			}
			if q.Continue = page.Continue; q.Continue == "" {
				return
			}
		}
	}
}
