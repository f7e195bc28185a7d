package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// TestStreamOfLostRight: a stream ends within a minute after its caller loses the right to get the operation.
func TestStreamOfLostRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := store.New(store.Options{
			Resource: v1alpha1.OperationsResource,
			Kind:     v1alpha1.GroupVersion.WithKind("Operation"), Namespaced: true,
		})
		defer st.Close()
		w := httptest.NewRecorder()
		asked := 0
		s := &stream{w: w, control: http.NewResponseController(w), timeout: time.Second, id: "one"}
		changes := &follower{Drainer: st.Drain(store.DrainOptions{
			SubscribeOptions: store.SubscribeOptions{Name: "test"}, Consume: s.consume,
		})}
		defer changes.Close()
		s.allowed = func(context.Context) bool { asked++; return asked < 3 }
		op := &v1alpha1.Operation{}
		op.Spec.OperationID = "one"
		began := time.Now()
		if !s.begin(false, op) || s.run(t.Context(), nil, changes) {
			t.Error("it does not end as it should")
		}
		if took := time.Since(began); asked != 3 || took > 3*time.Minute {
			t.Errorf("%d reviews in %v", asked, took)
		}
		if said := w.Body.String(); strings.Count(said, "still there") < 9 {
			t.Errorf("the stream ends with %q", said)
		}
	})
}
