package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// reader reads one operation, from the store or from the API server. It has no state.
type reader struct {
	store     *cache.Store
	scheduler *operations.Scheduler
	// pending is Options.Pending, or nil.
	pending func(ctx context.Context, namespace string, r operations.Resource) (operations.View, bool)
}

// find returns the Operation of a resource. It takes an operation in progress from the store. It confirms an ended or
// missing operation with the API server, because the store may not have a just-scheduled request yet. Otherwise a
// caller could see the outcome of a previous request as that of its own.
func (d reader) find(ctx context.Context, namespace string, res operations.Resource) (*v1alpha1.Operation, error) {
	if op, err := cache.Of[v1alpha1.Operation](d.store).Get(objectOf(namespace, res)); err == nil && !op.Terminal() {
		return op, nil
	}
	return d.scheduler.In(namespace).Get(ctx, res)
}

// get answers with the operation of a resource. It requires the right to get.
func (d reader) get(w http.ResponseWriter, r *http.Request, a admission) error {
	if err := a.wrong.problem(); err != nil {
		return err
	}
	res := resource(r)
	op, err := d.find(r.Context(), a.namespace, res)
	if d.pending != nil {
		if v, ok := d.pending(r.Context(), a.namespace, res); ok && (err != nil || op.EffectiveID() != v.OperationID) {
			showView(w, http.StatusOK, v)
			return nil
		}
	}
	if err != nil {
		return err
	}
	show(w, http.StatusOK, op)
	return nil
}

func resource(r *http.Request) operations.Resource {
	return operations.Resource{Type: r.PathValue("type"), ID: r.PathValue("id")}
}

func objectOf(namespace string, res operations.Resource) cache.Key {
	return cache.Key{Namespace: namespace, Name: v1alpha1.OperationName(res.Type, res.ID)}
}

func show(w http.ResponseWriter, status int, op *v1alpha1.Operation) {
	showView(w, status, operations.ViewOf(op))
}

func showView(w http.ResponseWriter, status int, v operations.View) {
	if !v.Terminal() {
		w.Header().Set("Retry-After", strconv.Itoa(retrySeconds))
	}
	writeJSON(w, status, v)
}

// locator returns the URLs of operations.
type locator struct {
	prefix    string // without a slash at its end
	namespace string // the default of requests
}

func (l locator) location(namespace string, res operations.Resource) string {
	at := l.prefix + res.Path()
	if namespace != l.namespace {
		at += "?namespace=" + url.QueryEscape(namespace)
	}
	return at
}
