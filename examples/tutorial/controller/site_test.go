package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"

	webv1alpha1 "example.com/sites/api/web/v1alpha1"
)

// The controller creates, corrects and deletes the children of a Site, and reports when it is ready.
func TestSite(t *testing.T) {
	user, namespace := start(t)
	ctx := t.Context()
	obj := &webv1alpha1.Site{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "first"},
		Spec:       webv1alpha1.SiteSpec{Image: "example.com/image:1", Config: map[string]string{"key": "one"}, Port: 80},
	}
	if err := user.Create(ctx, obj); err != nil {
		t.Fatal(err)
	}
	name := client.Key{Namespace: namespace, Name: childOfSite(obj).Name}
	deployment := &appsv1.Deployment{}
	clustertest.Eventually(t, "the Deployment", func(ctx context.Context) error { return user.Get(ctx, name, deployment) })
	if ready := readySite(ctx, t, user, obj); ready == metav1.ConditionTrue {
		t.Error("it is ready before its Deployment is available")
	}

	// No controller of Deployments runs here, so the test sets the status.
	available := func(d *appsv1.Deployment) error {
		d.Status = appsv1.DeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
			Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}},
		}
		return nil
	}
	if err := client.ModifyStatus(ctx, user, deployment, available); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the condition Ready", func(ctx context.Context) error {
		if ready := readySite(ctx, t, user, obj); ready != metav1.ConditionTrue {
			return fmt.Errorf("it is %s", ready)
		}
		return nil
	})
	service := &corev1.Service{}
	clustertest.Eventually(t, "the Service", func(ctx context.Context) error { return user.Get(ctx, name, service) })

	// The controller reverts the change of another client.
	config := &corev1.ConfigMap{}
	config.Namespace, config.Name = name.Namespace, name.Name
	meddle := func(c *corev1.ConfigMap) error { c.Data["key"] = "two"; return nil }
	if err := client.Modify(ctx, user, config, meddle); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the reverted ConfigMap", func(ctx context.Context) error {
		if err := user.Get(ctx, name, config); err != nil || config.Data["key"] == "one" {
			return err
		}
		return fmt.Errorf("its data is %v", config.Data)
	})

	// A Service without a port is deleted.
	noPort := func(o *webv1alpha1.Site) error { o.Spec.Port = 0; return nil }
	if err := client.Modify(ctx, user, obj, noPort); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the deleted Service", func(ctx context.Context) error {
		switch err := user.Get(ctx, name, service); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errors.New("it exists")
	})
}

// readySite returns the status of the condition Ready.
func readySite(
	ctx context.Context, t *testing.T, user *client.Client, obj *webv1alpha1.Site,
) metav1.ConditionStatus {
	t.Helper()
	live := &webv1alpha1.Site{}
	if err := user.Get(ctx, client.KeyOf(obj), live); err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(live.Status.Conditions, "Ready"); c != nil {
		return c.Status
	}
	return metav1.ConditionUnknown
}
