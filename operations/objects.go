package operations

import (
	"context"
	"log/slog"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

var operations = schema.GroupVersionResource{
	Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "operations",
}

// objects reads and writes the Operations of a namespace by name. Errors are those of package call.
type objects interface {
	// read returns nil if the Operation does not exist.
	read(ctx context.Context, name string) (*v1alpha1.Operation, error)
	// write creates or updates an Operation and returns it as stored.
	write(ctx context.Context, verb call.Verb, op *v1alpha1.Operation) (*v1alpha1.Operation, error)
	// patch applies a merge patch and returns the Operation as stored.
	patch(ctx context.Context, name string, body []byte) (*v1alpha1.Operation, error)
}

// objectClient implements objects on the API server. It has no state.
type objectClient struct {
	calls     *call.Client
	namespace string
	policy    call.Policy
	log       *slog.Logger
}

// in returns the client for another namespace.
func (o objectClient) in(namespace string) objectClient {
	o.namespace = namespace
	return o
}

func (o objectClient) read(ctx context.Context, name string) (*v1alpha1.Operation, error) {
	answer, err := call.Do(ctx, o.calls, call.Request{
		Verb: call.VerbGet, Resource: operations, Kind: "Operation", Namespace: o.namespace, Name: name, NotFoundOK: true,
	}, o.policy)
	if err != nil || answer == nil {
		return nil, err
	}
	op := &v1alpha1.Operation{}
	return op, answer.Into(op)
}

func (o objectClient) write(ctx context.Context, verb call.Verb, op *v1alpha1.Operation) (*v1alpha1.Operation, error) {
	answer, err := call.Do(ctx, o.calls, call.Request{
		Verb: verb, Resource: operations, Kind: "Operation", Namespace: o.namespace, Name: op.Name, Object: op,
		ConflictsExpected: true,
	}, o.policy)
	if err != nil {
		return nil, err
	}
	written := &v1alpha1.Operation{}
	if err := answer.Into(written); err != nil {
		return nil, err
	}
	o.log.InfoContext(ctx, "operation scheduled", "operation", written.EffectiveID(), "type", written.Spec.OperationType,
		"resource", written.Spec.ResourceType+"/"+written.Spec.ResourceID, "namespace", written.Namespace,
		"correlation", written.Spec.CorrelationID)
	return written, nil
}

// patch applies a merge patch.
func (o objectClient) patch(ctx context.Context, name string, body []byte) (*v1alpha1.Operation, error) {
	answer, err := call.Do(ctx, o.calls, call.Request{
		Verb: call.VerbPatch, PatchType: types.MergePatchType, Resource: operations, Kind: v1alpha1.KindOperation,
		Namespace: o.namespace, Name: name, Body: body,
	}, o.policy)
	if err != nil {
		return nil, err
	}
	patched := &v1alpha1.Operation{}
	return patched, answer.Into(patched)
}

// page returns one page of the Operations that q selects.
func (o objectClient) page(ctx context.Context, q Query) (*v1alpha1.OperationList, error) {
	namespace := o.namespace
	if q.AllNamespaces {
		namespace = ""
	}
	answer, err := call.Do(ctx, o.calls, call.Request{
		Verb: call.VerbList, Resource: operations, Kind: v1alpha1.KindOperation, Namespace: namespace, Query: q.values(),
	}, o.policy)
	if err != nil {
		return nil, err
	}
	list := &v1alpha1.OperationList{}
	if err := answer.Into(list); err != nil {
		return nil, err
	}
	list.Items = slices.DeleteFunc(list.Items, func(op v1alpha1.Operation) bool { return !q.Matches(&op) })
	return list, nil
}

// watched is a watch of one Operation. The store is empty until the source runs.
type watched struct {
	store  *cache.Store
	source *source.Source
}

func (o objectClient) watch(r Resource) (watched, error) {
	field := fields.OneTermEqualSelector("metadata.name", v1alpha1.OperationName(r.Type, r.ID)).String()
	st := store.New(store.Options{
		Resource: operations, Kind: v1alpha1.GroupVersion.WithKind("Operation"), Namespaced: true, FieldSelector: field,
	})
	src, err := source.New(source.Config{
		Connection: o.calls.Connection(), Budget: connection.Streams, Resource: operations,
		Namespaces: []string{o.namespace}, FieldSelector: field, Logger: o.log,
	}, st.Sink)
	return watched{st, src}, err
}
