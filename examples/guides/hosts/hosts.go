// Package hosts has hooks for Services with a host, which read other Services.
package hosts

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/client"
)

const annotation = "example.com/host"

// Declare declares the hooks and the index that they read.
func Declare(rt *fairlead.Runtime, hooks *admission.Hooks) {
	fairlead.IndexField(rt, "host", func(s *corev1.Service) []string { return []string{s.Annotations[annotation]} })
	admission.Validate(hooks, admission.Rule{
		OnFailure: admission.FailClosed, Name: "host.services.example.com",
	}, unique(rt.Client()))
	admission.Validate(hooks, admission.Rule{
		OnFailure: admission.FailClosed, Name: "keep.services.example.com",
		Operations: []admission.Operation{admission.Delete},
	}, keep)
}

// unique refuses a host that another Service has.
func unique(c *client.Client) func(context.Context, *admission.Request[corev1.Service]) error {
	return func(ctx context.Context, r *admission.Request[corev1.Service]) error {
		host := r.Object.Annotations[annotation]
		if host == "" {
			return nil
		}
		for other, err := range client.List[corev1.Service](ctx, c, client.Index("host", host)) { // from the cache
			if err != nil {
				return admission.Undecided(err)
			}
			if (client.KeyOf(other) != client.Key{Namespace: r.Namespace, Name: r.Name}) {
				return field.Duplicate(field.NewPath("metadata", "annotations").Key(annotation), host)
			}
		}
		return nil
	}
}

// keep refuses the deletion of a Service with a host. r.Object is nil, and r.Old is the Service.
func keep(_ context.Context, r *admission.Request[corev1.Service]) error {
	if host := r.Old.Annotations[annotation]; host != "" {
		return fmt.Errorf("%s needs it: remove the annotation %s first", host, annotation)
	}
	return nil
}
