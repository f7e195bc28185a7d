package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/admission/admissiontest"
)

// The API server calls hooks from the return of Start until the test ends, only for the namespace of the test.
func TestStart(t *testing.T) {
	t.Parallel()
	api := kubernetes.NewForConfigOrDie(env.Config(t))
	var name string
	var foreign int
	create := func(t *testing.T, namespace string) error {
		t.Helper()
		_, err := api.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"},
		}, metav1.CreateOptions{})
		return err
	}
	other := env.Namespace(t)
	var tested string
	t.Run("while it runs", func(t *testing.T) {
		h := admissiontest.Start(t, env.Config(t), func(_ *fairlead.Runtime, h *admission.Hooks) {
			admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed, Timeout: 30 * time.Second},
				func(_ context.Context, r *admission.Request[corev1.ConfigMap]) error {
					if r.Namespace != tested && tested != "" {
						foreign++
					}
					return errors.New("no maps here")
				})
		})
		name, tested = h.Options.Name, h.Namespace
		if err := create(t, h.Namespace); err == nil || !strings.Contains(err.Error(), "no maps here") {
			t.Errorf("in the namespace of the test: %v", err)
		}
		for _, namespace := range []string{h.System, other} {
			if err := create(t, namespace); err != nil {
				t.Errorf("in %s: %v", namespace, err)
			}
		}
	})
	if foreign > 0 {
		t.Errorf("the hook was called for other namespaces %d times", foreign)
	}
	left, err := api.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + name,
	})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("left behind: %d configurations, %v", len(left.Items), err)
	}
}

// failed is a test that records its failures.
type failed struct {
	testing.TB
	ctx     context.Context
	texts   []string
	cleanup []func()
}

func (f *failed) Context() context.Context { return f.ctx }
func (f *failed) Helper()                  {}
func (f *failed) Cleanup(fn func())        { f.cleanup = append(f.cleanup, fn) }
func (f *failed) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

func (f *failed) Fatal(args ...any) {
	f.texts = append(f.texts, fmt.Sprint(args...))
	runtime.Goexit()
}

// A mistake in a declaration fails the test at once, with the mistake.
func TestMistake(t *testing.T) {
	t.Parallel()
	f := &failed{TB: t, ctx: t.Context()}
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		admissiontest.Start(f, env.Config(t), func(_ *fairlead.Runtime, h *admission.Hooks) {
			admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed, Name: "short"},
				func(context.Context, *admission.Request[corev1.ConfigMap]) error { return nil })
		})
	}()
	<-done
	for _, fn := range slices.Backward(f.cleanup) {
		fn()
	}
	text := strings.Join(f.texts, "\n")
	for _, want := range []string{"the runtime of the hooks has ended", `Invalid value: "short"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the test does not say %q:\n%s", want, text)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
