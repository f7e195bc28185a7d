package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/install"
)

// TestOldCRD runs with a CustomResourceDefinition without the field of the key. No call is made, and the operation,
// events and logs give the reason. After an update of the definition the operation continues. It can be canceled
// before.
func TestOldCRD(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	b := operationbed.On(t, c.Config(), clustertest.Namespace(t, c.Config()))
	if err := install.CRDs(b.Ctx, b.Calls); err != nil {
		t.Fatal(err)
	}
	crds := v1alpha1.CRDs()
	for _, crd := range crds {
		raw, err := json.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		if crd.Name != "operations.fairlead.io" {
			continue
		}
		old := &apiextensionsv1.CustomResourceDefinition{}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(raw), `"idempotencyKey"`, `"somethingElse"`)),
			old); err != nil {
			t.Fatal(err)
		}
		b.Apply(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), "CustomResourceDefinition", old)
	}
	var calls atomic.Int32
	b.Receiver.Answer = func(http.ResponseWriter, *http.Request, string, int) { calls.Add(1) }
	b.Webhook("work", nil)
	warnings, log := &operationbed.Warnings{}, &testlog.Book{}
	b.Eventually("pruned", func() bool { // the server applies it after a moment
		op := b.Schedule(operations.Request{
			ID:       uuid.NewString(),
			Resource: operations.Resource{Type: "app", ID: uuid.NewString()},
		})
		op.Status.OperationID, op.Status.OperationType = op.Spec.OperationID, op.Spec.OperationType
		op.Status.Webhooks = []v1alpha1.WebhookCallStatus{
			{WebhookID: "work", State: v1alpha1.PhaseFailed, IdempotencyKey: "x"},
		}
		now := metav1.NowMicro()
		op.Status.Phase, op.Status.FinishedAt = v1alpha1.PhaseFailed, &now
		return b.PutStatus(op).Status.Webhooks[0].IdempotencyKey == ""
	})
	b.Start(func(o *executor.Options) { o.Recorder, o.Logger = warnings, log.Logger() })
	first := b.Schedule(operations.Request{
		Resource: operations.Resource{Type: "app", ID: "first"},
		Webhooks: []string{"work"},
	})
	b.Schedule(operations.Request{Webhooks: []string{"work"}})
	b.Eventually("the view gives the reason",
		func() bool { return strings.Contains(operations.ViewOf(b.Get()).Waiting, "operations.fairlead.io") })
	b.Eventually("recorded", func() bool {
		all := strings.Join(warnings.Told(), "\n")
		return strings.Contains(all, v1alpha1.ReasonOutdatedCRD) && strings.Contains(all, "operations.fairlead.io") &&
			strings.Contains(log.String(), "crd=operations.fairlead.io")
	})
	if _, err := b.Scheduler.Cancel(b.Ctx, operationbed.ResourceOf(first), first.EffectiveID()); err != nil {
		t.Fatal(err)
	}
	if got := b.End(first); b.Reason(got) != v1alpha1.ReasonCanceled {
		t.Errorf("a cancelled one became %+v", got.Status)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
	if err := install.CRDs(b.Ctx, b.Calls); err != nil {
		t.Fatal(err)
	}
	got := b.End(b.Get())
	if diff := cmp.Diff([]string{b.Namespace + "." + got.EffectiveID() + ".work"}, operationbed.KeysOf(got)); diff != "" ||
		got.Status.Phase != v1alpha1.PhaseSuccess || calls.Load() != 1 {
		t.Errorf("it became %+v after %d calls; keys, -want +got:\n%s", got.Status, calls.Load(), diff)
	}
	if n := len(warnings.Told()); n > 3 { // one for each operation, and the cancellation
		t.Errorf("it is reported repeatedly: %q", warnings.Told())
	}
}
