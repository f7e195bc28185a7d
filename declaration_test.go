package fairlead_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

// TestTwoControllersOfOneName: the error names both places. Controllers of two clusters may have the same name.
func TestTwoControllersOfOneName(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		other := rt.Join("other", s.Config())
		fine := reconcile.Func[corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
			return reconcile.Done, nil
		})
		reconcile.New[corev1.ConfigMap](other, "maps", fine)
		reconcile.New[corev1.ConfigMap](rt, "maps", fine)
		reconcile.New[corev1.ConfigMap](rt, "maps", fine)
		err := rt.Run(t.Context())
		if err == nil || strings.Count(err.Error(), "declaration_test.go:") != 2 || strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), "the name is taken by the controller declared at ") {
			t.Errorf("error %v", err)
		}
	})
}

// unknown is a type outside the scheme.
type unknown struct{ corev1.ConfigMap }

func TestMistakesAreReportedBeforeAnyRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		other := rt.Join("other", s.Config())
		fine := reconcile.Func[corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
			return reconcile.Done, nil
		})
		reconcile.New[corev1.ConfigMap](rt, "fine", fine)
		reconcile.New[corev1.ConfigMap](rt, "nobody", nil)
		reconcile.New[corev1.ConfigMap](rt, "nothing", fine, reconcile.Watches[corev1.Secret](nil))
		reconcile.New[corev1.ConfigMap](other, "a finalizer", fine, reconcile.Finalizer("without a domain"))
		reconcile.New[corev1.ConfigMap](rt, "an unknown kind", fine, reconcile.Owns[unknown]())
		reconcile.New[unstructured.Unstructured](rt, "no kind", reconcile.Func[unstructured.Unstructured](
			func(context.Context, *unstructured.Unstructured) (reconcile.Result, error) {
				return reconcile.Done, nil
			}))
		reconcile.Flow(rt, "no flow", nil, reconcile.Fibers[corev1.ConfigMap, corev1.ConfigMap]{
			Flow: flow.New[corev1.ConfigMap]("empty"),
		})
		// without a source
		observe.On(rt, Maps, func(context.Context, observe.Event[metav1.PartialObjectMetadata]) error { return nil })
		err := rt.Run(t.Context())
		if !errors.Is(err, reconcile.ErrInvalid) {
			t.Fatalf("got %v", err)
		}
		for _, want := range []string{
			"nobody", "nothing", "a finalizer", "an unknown kind", "no kind", "no flow",
			"no engine", "no position", "maps",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error lacks %q:\n%v", want, err)
			}
		}
		if strings.Contains(err.Error(), `"fine"`) || strings.Count(err.Error(), "declaration_test.go:") < 7 {
			t.Errorf("got %v, want the mistakes, with file and line", err)
		}
		if n := len(s.Log().Select(apiserver.Match{})); n > 0 {
			t.Errorf("%d requests were made", n)
		}
	})
}
