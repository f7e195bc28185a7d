package e2e_test

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

// The garbage collector knows the kinds that Prepare has defined from its start on. It looks for others only every 30
// seconds.
func TestPrepare(t *testing.T) {
	t.Parallel()
	const resync = 30 * time.Second
	var start time.Time
	c := clustertest.Start(t, cluster.Options{
		ControllerManager: true, Prepare: func(ctx context.Context, cfg *rest.Config) error {
			start = time.Now()
			return clustertest.ApplyCRDs(ctx, cfg, clustertest.CRDFiles("../../examples/controller-runtime/config/crd"))
		},
	})
	squads := schema.GroupVersionResource{Group: "squads.example.com", Version: "v1", Resource: "squads"}
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	squad := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "squads.example.com/v1", "kind": "Squad", "spec": map[string]any{"size": int64(1), "image": "web:v1"},
	}}
	squad.SetName("red")
	squad.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"}})
	of := client.Resource(squads).Namespace(metav1.NamespaceDefault)
	if _, err := of.Create(t.Context(), squad, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the squad without an owner", func(ctx context.Context) error {
		_, err := of.Get(ctx, "red", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is still there"), err)
	})
	if took := time.Since(start); took >= resync {
		t.Errorf("the collection took %s, as if the kind were unknown at the start", took)
	}
}
