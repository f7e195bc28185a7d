package hostile_test

import (
	"fmt"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// full returns an Operation that leaves about so many bytes of etcd's limit for its status, which may be too few.
func full(namespace, id string, left int) *v1alpha1.Operation {
	const most, others = 3 << 19, 253 << 10 // 1.5 MiB in total
	op := newOperation(namespace, id)
	op.Annotations = map[string]string{"full": strings.Repeat("a", 250<<10)}
	op.Spec.RequestObject = &v1alpha1.RequestObject{Resource: &apiextensionsv1.JSON{
		Raw: []byte(`"` + strings.Repeat("x", most-others-left) + `"`),
	}}
	return op
}

// objectsFull leave no room for their status.
func objectsFull(a *tenant) {
	a.webhook("h", a.says(http.StatusBadRequest, `{"error": "`+strings.Repeat("e", 2_000)+`"}`), nil)
	a.each(24, func(i int) {
		op := full(a.namespace, fmt.Sprint("f", i), 8_000-300*i)
		op.Spec.WebhookIDs = []string{"h"}
		if err := a.hit(submit(a.ctx, a.calls, op, once)); err == nil {
			a.mustEnd(fmt.Sprint("f", i), v1alpha1.ReasonInvalid) // the request object may have a sixth of that
		}
	})
	<-a.ctx.Done()
}

// touch changes annotations of an Operation, a quarter of a megabyte each time.
func (a *tenant) touch(id string, i int) {
	a.patch(true, id, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{"full": strings.Repeat(string(rune('a'+i%26)), 250<<10)},
	}})
}

// objectsTouched change all the time while they wait.
func objectsTouched(a *tenant) {
	a.each(50, func(i int) {
		op := full(a.namespace, fmt.Sprint("f", i), 200<<10)
		op.Spec.WebhookIDs = []string{"missing"}
		_ = a.hit(submit(a.ctx, a.calls, op, once)) // hit counts the error
	})
	a.always(4, 50, func(hand, i int) { a.touch(fmt.Sprint("f", (4*i+hand)%50), i) })
}

// objectsEndedTouched change long after their end. They name locks, which only unfinished operations hold.
func objectsEndedTouched(a *tenant) {
	a.each(50, func(i int) {
		op := full(a.namespace, fmt.Sprint("f", i), 200<<10)
		op.Annotations["lock"] = `"lock"`
		_ = a.hit(submit(a.ctx, a.calls, op, once)) // hit counts the error
	})
	a.always(4, 50, func(hand, i int) { a.touch(fmt.Sprint("f", (4*i+hand)%50), i) })
}

// objectsFinalizers remain after they are deleted: while they run, while they wait, and after their time to live.
func objectsFinalizers(a *tenant) {
	a.webhook("h", a.hangs(), nil)
	a.always(4, 50, func(hand, i int) {
		id := fmt.Sprint("z", hand, "-", i)
		op := newOperation(a.namespace, id)
		op.Finalizers = []string{"example.com/never"}
		op.Spec.WebhookIDs, op.Spec.TTLAfterFinished = []string{"h", "missing"}[i%2:i%2+1], &metav1.Duration{}
		if i%3 == 0 {
			op.Spec.WebhookIDs = nil
		}
		_ = a.hit(submit(a.ctx, a.calls, op, once)) // hit counts the error
		a.remove(id)
	})
}

// secretsChanged are as large as allowed, and change each time.
func secretsChanged(a *tenant) {
	for i := range 20 {
		a.secret(fmt.Sprint("s", i), map[string][]byte{
			"token": []byte("t-o-k-e-n"), "rest": []byte(strings.Repeat("r", 1_000_000)),
		})
	}
	a.webhook("h", a.says(http.StatusServiceUnavailable, ""), func(w *v1alpha1.WebhookSpec) {
		a.again(w)
		w.Auth = &v1alpha1.WebhookAuth{Bearer: &v1alpha1.SecretAuth{SecretRef: v1alpha1.SecretReference{Name: "s0"}}}
	})
	a.each(20, func(i int) { a.call(fmt.Sprint("s", i), "h") })
	a.always(2, 20, func(hand, i int) {
		body := fmt.Appendf(nil, `{"stringData":{"rest":%q}}`, strings.Repeat(string(rune('a'+i%26)), 1_000_000))
		_, err := a.clients.CoreV1().Secrets(a.namespace).Patch(a.ctx, fmt.Sprint("s", (2*i+hand)%20), types.MergePatchType,
			body, metav1.PatchOptions{})
		_ = a.hit(err) // hit counts the error
	})
}
