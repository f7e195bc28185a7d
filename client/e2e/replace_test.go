package e2e_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
)

// TestReplace sends Replace to a server that adds defaults and managedFields. The object becomes the stored one, and a
// Replace of an old version is refused.
func TestReplace(t *testing.T) {
	t.Parallel()
	config, namespace := env.Config(t), env.Namespace(t)
	c, err := client.New(client.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Data:       map[string]string{"n": "1"},
	}
	if err := c.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	stale := cm.DeepCopy()
	for _, n := range []string{"2", "3"} {
		cm.Data["n"] = n
		if err := c.Replace(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	var live corev1.ConfigMap
	if err := c.Live().Get(t.Context(), client.KeyOf(cm), &live); err != nil {
		t.Fatal(err)
	}
	if len(live.ManagedFields) == 0 {
		t.Error("the server has lost its managedFields")
	}
	live.ManagedFields = nil
	cm.TypeMeta = live.TypeMeta
	if diff := cmp.Diff(&live, cm); diff != "" {
		t.Errorf("the object differs from that of the server, -server +object:\n%s", diff)
	}
	var refused *apierrors.StatusError
	if err := c.Replace(t.Context(), stale); !errors.As(err, &refused) || refused.ErrStatus.Code != http.StatusConflict {
		t.Errorf("an old version: %v", err)
	}
}
