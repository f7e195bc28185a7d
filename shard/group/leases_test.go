package group

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestRenewal checks that nobody renews a Lease that was marked, nor one that was deleted.
func TestRenewal(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	client, err := typed.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	l := leases{client: client, namespace: "a", timeout: time.Minute}
	own, err := l.create(t.Context(), &lease{ObjectMeta: metav1.ObjectMeta{Name: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	mark := own.DeepCopy()
	annotate(mark, deadAnnotation, "another")
	if mark, err = l.put(t.Context(), mark); err != nil {
		t.Fatal(err)
	}
	if _, err := l.put(t.Context(), own); !errors.Is(err, errConflict) {
		t.Errorf("a marked Lease is renewed: %v", err)
	}
	if err := l.remove(t.Context(), "m", own.UID, own.ResourceVersion); !errors.Is(err, errConflict) {
		t.Errorf("a newer one is deleted: %v", err)
	}
	if err := l.remove(t.Context(), "m", mark.UID, mark.ResourceVersion); err != nil {
		t.Fatal(err)
	}
	if _, err := l.put(t.Context(), mark); !errors.Is(err, errConflict) && !apierrors.IsNotFound(err) {
		t.Errorf("a Lease that was deleted is renewed: %v", err)
	}
	if err := l.remove(t.Context(), "m", mark.UID, ""); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}
