package main

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/simulate"
)

// Whatever fails, a domain becomes available, replaces its servers one at a time, starts a lost one again, and leaves
// no pod behind.
func TestFaults(t *testing.T) {
	simulate.Test(t, simulate.Subject{
		Start: func(ctx context.Context, cfg *rest.Config) error {
			rt, err := newOperator(cfg, operatorOptions{})
			if err != nil {
				return err
			}
			return rt.Run(ctx)
		},
		CRDs: "domains.yaml",
	},
		simulate.Apply("testdata/shop.yaml"),
		simulate.Await(available),
		simulate.Patch("domains/shop", `{"spec":{"image":"server:2"}}`),
		simulate.Await(available),
		simulate.Delete("pods/shop-managed-2"),
		simulate.Await(available),
		simulate.Delete("domains/shop"),
		simulate.Gone("domains/shop"),
		simulate.Await(func(w simulate.World) error {
			if n := len(w.Objects("pods")); n > 0 {
				return fmt.Errorf("there are %d pods", n)
			}
			return nil
		}),
		simulate.Schedules(60),
	)
}

// available returns nil if the domain is available, and all its servers are ready with its present image.
func available(w simulate.World) error {
	var d Domain
	if err := w.Into("domains/shop", &d); err != nil {
		return err
	}
	if d.Status.ObservedGeneration != d.Generation || d.Status.Phase != phaseAvailable {
		return fmt.Errorf("the domain is %s", d.Status.Phase)
	}
	ready := 0
	for _, u := range w.Objects("pods") {
		var pod corev1.Pod
		if err := w.Into("pods/"+u.GetName(), &pod); err != nil {
			return err
		}
		if pod.DeletionTimestamp == nil && podReady(&pod) && pod.Spec.Containers[0].Image == d.Spec.Image {
			ready++
		}
	}
	if ready != d.Spec.Servers+1 {
		return fmt.Errorf("%d servers are ready", ready)
	}
	return nil
}
