package toys

import (
	"context"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/simulate"
)

// ownDefinition does as CreatedTwice does, and creates the definition of its kind when it starts.
func ownDefinition(fixed bool) simulate.Subject {
	controller := CreatedTwice(fixed)
	return simulate.Subject{Start: func(ctx context.Context, cfg *rest.Config) error {
		if err := define(ctx, cfg); err != nil {
			return err
		}
		return controller.Start(ctx, cfg)
	}}
}

// define applies the definition until it is served. Failures are tried again.
func define(ctx context.Context, cfg *rest.Config) error {
	text, err := os.ReadFile("testdata/widgets.yaml")
	if err != nil {
		return err
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	crds := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := crds.Apply(ctx, crd.GetName(), crd, metav1.ApplyOptions{FieldManager: "toy", Force: true})
		if err == nil {
			_, err = client.Resource(widgets).List(ctx, metav1.ListOptions{})
		}
		return err == nil, nil
	})
}
