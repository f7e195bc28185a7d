package executor

import (
	"errors"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// newClient returns a client that reads from stores and writes Operations, Webhooks and Events. It knows their
// resources without discovery.
func newClient(
	calls *call.Client, policy call.Policy, log *slog.Logger, stores ...*store.Store,
) (*client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation), v1alpha1.GroupVersion.WithKind(v1alpha1.KindWebhook),
		corev1.SchemeGroupVersion.WithKind("Event"),
	} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	return client.New(client.Options{
		Call: calls, Policy: policy, Stores: stores, Scheme: scheme, Mapper: mapper,
		Logger: log,
	})
}
