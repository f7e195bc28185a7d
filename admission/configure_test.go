package admission_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
)

func TestService(t *testing.T) {
	t.Parallel()
	hookbed.Service(t, model(t), "test-system")
}

func TestATypeThatIsNotServed(t *testing.T) {
	t.Parallel()
	cfg, system := model(t), "test-system"
	b := hookbed.New(t, cfg)
	scheme, _ := hookbed.Pages(system + ".example.com")
	rt := fairlead.New(cfg, fairlead.WithScheme(scheme))
	h := admission.Serve(rt, admission.Options{
		Name: system, Namespace: system, Listen: "127.0.0.1:0", Service: "hooks",
	})
	admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed},
		func(context.Context, *admission.Request[hookbed.Page]) error { return nil })
	err := rt.Run(b.Ctx)
	var hook *admission.HookError
	if !errors.Is(err, admission.ErrNotServed) || !errors.As(err, &hook) || hook.Kind.Kind != "Page" ||
		hook.Hook != "validate.page.v1."+system+".example.com" || !strings.Contains(err.Error(), "configure_test.go:") {
		t.Errorf("Run: %v", err)
	}
	if _, err := b.API.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(b.Ctx, system,
		metav1.GetOptions{}); err == nil {
		t.Error("something was written")
	}
	if _, err := b.API.CoreV1().Secrets(system).Get(b.Ctx, system+"-webhook-ca", metav1.GetOptions{}); err == nil {
		t.Error("a Secret was written")
	}
}
