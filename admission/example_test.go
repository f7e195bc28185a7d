package admission_test

import (
	"context"
	"log"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
)

// Pods get a label and keep their priority.
func Example() {
	cfg, err := fairlead.Config("")
	if err != nil {
		log.Fatal(err)
	}
	rt := fairlead.New(cfg, fairlead.WithSignals(), fairlead.WithListen(":9090"))
	hooks := admission.Serve(rt, admission.Options{
		Name: "pods", Namespace: "pods-system", Service: "pods-webhook", // port 443 of the Service leads to 9443
	})
	admission.Mutate(hooks, admission.Rule{
		OnFailure:  admission.FailOpen,
		Operations: []admission.Operation{admission.Create},
	},
		func(_ context.Context, r *admission.Request[corev1.Pod]) error {
			if r.Object.Labels == nil {
				r.Object.Labels = map[string]string{}
			}
			r.Object.Labels["created-by"] = r.User.UID
			return nil
		})
	admission.Validate(hooks, admission.Rule{
		OnFailure:  admission.FailClosed,
		Operations: []admission.Operation{admission.Update},
	},
		func(_ context.Context, r *admission.Request[corev1.Pod]) error {
			if r.Object.Spec.PriorityClassName != r.Old.Spec.PriorityClassName {
				return field.Forbidden(field.NewPath("spec", "priorityClassName"), "it cannot be changed")
			}
			if slices.ContainsFunc(r.Object.Spec.Containers,
				func(c corev1.Container) bool { return c.Resources.Limits == nil }) {
				r.Warn("a container has no limits")
			}
			return nil
		})
	if err := rt.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
