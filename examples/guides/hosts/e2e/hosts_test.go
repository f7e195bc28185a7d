// Package e2e_test calls the hooks of package hosts through a real API server.
package e2e_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/admission/admissiontest"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/examples/guides/hosts"
)

var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }

// Only one Service can have a host, and it cannot be deleted while it has one.
func TestHosts(t *testing.T) {
	hooks := admissiontest.Start(t, env.Config(t), hosts.Declare)
	user, err := client.New(client.Options{Config: env.Config(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	service := func(name string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: hooks.Namespace, Name: name, Annotations: map[string]string{"example.com/host": "shop"},
			},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
	}
	first := service("first")
	if err := user.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the second Service is refused", func(ctx context.Context) error {
		second := service("second")
		err := user.Create(ctx, second)
		if apierrors.IsInvalid(err) {
			return nil
		}
		if err == nil { // the cache of the hook did not have the first one yet
			without := func(s *corev1.Service) error { s.Annotations = nil; return nil }
			return errors.Join(errors.New("it was created"), client.Modify(ctx, user, second, without), user.Delete(ctx, second))
		}
		return err
	})
	if err := user.Delete(t.Context(), first); !apierrors.IsForbidden(err) {
		t.Errorf("the deletion of a Service with a host: %v", err)
	}
	without := func(s *corev1.Service) error { s.Annotations = nil; return nil }
	if err := client.Modify(t.Context(), user, first, without); err != nil {
		t.Fatal(err)
	}
	if err := user.Delete(t.Context(), first); err != nil {
		t.Error(err)
	}
}
