package executor_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

var (
	secretsResource  = corev1.SchemeGroupVersion.WithResource("secrets")
	accountsResource = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
)

// secret creates a Secret that is not released.
func (b *bench) secret(name string, data map[string]string) {
	b.T.Helper()
	b.Create(secretsResource, "Secret", &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.Namespace}, StringData: data,
	})
}

// label sets a label of an object; nil removes it. annotate does the same with an annotation.
func (b *bench) label(of schema.GroupVersionResource, name string, value any) {
	b.T.Helper()
	b.mark(of, name, "labels", v1alpha1.LabelWebhookCredentials, value)
}

func (b *bench) annotate(of schema.GroupVersionResource, name string, value any) {
	b.T.Helper()
	b.mark(of, name, "annotations", v1alpha1.AnnotationWebhookAudiences, value)
}

func (b *bench) mark(of schema.GroupVersionResource, name, field, key string, value any) {
	b.T.Helper()
	text := "null"
	if value != nil {
		text = fmt.Sprintf("%q", value)
	}
	if _, err := call.Do(b.Ctx, b.Calls, call.Request{
		Verb: call.VerbPatch, Resource: of, Namespace: b.Namespace, Name: name, PatchType: types.MergePatchType,
		Body: fmt.Appendf(nil, `{"metadata":{%q:{%q:%s}}}`, field, key, text),
	}, call.Policy{}); err != nil {
		b.T.Fatal(err)
	}
}

// valid waits until the condition Valid of a Webhook has a reason, and returns the condition.
func (b *bench) valid(name, reason string) metav1.Condition {
	b.T.Helper()
	var valid *metav1.Condition
	b.Eventually("webhook "+name+" "+reason, func() bool {
		valid = meta.FindStatusCondition(b.Hook(name).Status.Conditions, v1alpha1.ConditionValid)
		return valid != nil && valid.Reason == reason
	})
	return *valid
}

// waitsFor waits until the usual operation reports that it waits for these credentials.
func (b *bench) waitsFor(what ...string) {
	b.T.Helper()
	b.Eventually("waiting", func() bool { return operations.ViewOf(b.Get()).Waiting != "" })
	said := operations.ViewOf(b.Get()).Waiting
	for _, text := range what {
		if !strings.Contains(said, text) {
			b.T.Errorf("it reports %q, not %q", said, text)
		}
	}
	if ready := meta.FindStatusCondition(b.Get().Status.Conditions,
		v1alpha1.ConditionReady); ready.Reason != v1alpha1.ReasonNotReleased {
		b.T.Errorf("condition %+v", ready)
	}
}

func ref(name string) v1alpha1.SecretReference { return v1alpha1.SecretReference{Name: name} }

func bearer(s *v1alpha1.WebhookSpec) {
	s.Auth = &v1alpha1.WebhookAuth{Bearer: &v1alpha1.SecretAuth{SecretRef: ref("login")}}
}

// TestNotReleased: a Webhook that names a Secret which is not released is not called, whatever the Secret is for. Its
// operation continues as soon as the Secret is released.
func TestNotReleased(t *testing.T) {
	tests := map[string]struct {
		data   map[string]string
		change func(*v1alpha1.WebhookSpec)
	}{
		"Bearer": {map[string]string{"token": "t-o-k"}, bearer},
		"Basic": {map[string]string{"username": "u", "password": "p-a-s-s"}, func(s *v1alpha1.WebhookSpec) {
			s.Auth = &v1alpha1.WebhookAuth{Basic: &v1alpha1.SecretAuth{SecretRef: ref("login")}}
		}},
		"OAuth2": {map[string]string{"client_id": "u", "client_secret": "s-e-c"}, func(s *v1alpha1.WebhookSpec) {
			s.Auth = &v1alpha1.WebhookAuth{OAuth2: &v1alpha1.OAuth2Auth{
				TokenURL: strings.TrimSuffix(s.Request.URL, "/pay") + "/token", SecretRef: ref("login"),
			}}
		}},
		"Signing": {map[string]string{"key": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, func(s *v1alpha1.WebhookSpec) {
			s.Signing = &v1alpha1.WebhookSigning{SecretRef: ref("login")}
		}},
		"Authority": {nil, func(s *v1alpha1.WebhookSpec) {
			s.TLS = &v1alpha1.WebhookTLS{CASecretRef: new(ref("login"))}
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
				if path == "/token" {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"access_token":"t-o-k","token_type":"Bearer","expires_in":3600}`)
				}
			}
			if tc.data == nil {
				tls := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				t.Cleanup(tls.Close)
				tc.data = map[string]string{
					"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tls.Certificate().Raw})),
				}
				b.Receiver.URL = tls.URL
			}
			b.secret("login", tc.data)
			b.Webhook("pay", tc.change)
			recorder := &operationbed.Warnings{}
			b.Start(func(o *executor.Options) { o.Recorder = recorder })
			op := b.Schedule(operations.Request{Webhooks: []string{"pay"}})
			b.waitsFor("webhook pay", "secret login", v1alpha1.LabelWebhookCredentials+"=true")
			if valid := b.valid("pay", v1alpha1.ReasonNotReleased); valid.Status != metav1.ConditionFalse ||
				!strings.Contains(valid.Message, v1alpha1.LabelWebhookCredentials) {
				t.Errorf("condition %+v", valid)
			}
			if got := b.Get().Status.Webhooks; len(got) > 0 {
				t.Errorf("it was tried: %+v", got)
			}
			b.label(secretsResource, "login", "yes") // only the exact value releases
			b.label(secretsResource, "login", "true")
			ended := b.End(op)
			if v := operations.ViewOf(ended); v.Status != operations.Succeeded || ended.Status.Webhooks[0].RetriesCount != 0 {
				t.Errorf("outcome %+v", v)
			}
			if valid := b.valid("pay", v1alpha1.ReasonCompiled); valid.Status != metav1.ConditionTrue ||
				strings.Contains(valid.Message, "released") {
				t.Errorf("condition %+v", valid)
			}
			if reported := recorder.Told(); len(reported) != 1 ||
				!strings.HasPrefix(reported[0], v1alpha1.ReasonNotReleased+": ") {
				t.Errorf("events %q", reported)
			}
		})
	}
}

// TestReleasedFor: tokens of a service account are requested only for the audiences that it names.
func TestReleasedFor(t *testing.T) {
	b := setup(t)
	sent := make(chan string, 4)
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
		sent <- r.Header.Get("Authorization")
	}
	b.Webhook("pay", func(s *v1alpha1.WebhookSpec) {
		s.Auth = &v1alpha1.WebhookAuth{ServiceAccountToken: &v1alpha1.ServiceAccountTokenAuth{
			Audience: "crm", ServiceAccountName: "caller",
		}}
	})
	b.Start(nil)
	op := b.Schedule(operations.Request{Webhooks: []string{"pay"}})
	b.waitsFor("service account caller", v1alpha1.AnnotationWebhookAudiences)
	b.Create(accountsResource, "ServiceAccount", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: "caller", Namespace: b.Namespace,
		Annotations: map[string]string{v1alpha1.AnnotationWebhookAudiences: "erp, crm2,xcrm"},
	}})
	b.valid("pay", v1alpha1.ReasonNotReleased)
	b.annotate(accountsResource, "caller", "erp , crm,")
	if v := operations.ViewOf(b.End(op)); v.Status != operations.Succeeded {
		t.Fatalf("outcome %+v", v)
	}
	if got := b.Received(sent); !strings.HasPrefix(got, "Bearer "+b.Namespace+"/caller/") {
		t.Errorf("authorization %.10q", got)
	}
	b.valid("pay", v1alpha1.ReasonCompiled)
	// The token is cached and valid, but is not sent after the release is withdrawn.
	b.annotate(accountsResource, "caller", nil)
	b.valid("pay", v1alpha1.ReasonNotReleased)
	op = b.Schedule(operations.Request{Webhooks: []string{"pay"}})
	b.waitsFor("audience crm")
	b.annotate(accountsResource, "caller", "crm")
	if v := operations.ViewOf(b.End(op)); v.Status != operations.Succeeded || len(sent) != 1 {
		t.Errorf("outcome %+v, %d calls", v, len(sent))
	}
}

// TestReleaseTakenBack: a polling operation waits while the release of its credentials is withdrawn.
func TestReleaseTakenBack(t *testing.T) {
	b := setup(t)
	b.secret("login", map[string]string{"token": "t-o-k"})
	b.label(secretsResource, "login", "true")
	var done atomic.Bool
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
		switch {
		case r.Header.Get("Authorization") != "Bearer t-o-k":
			b.T.Errorf("%s without a token", path)
		case path == "/pay":
			w.Header().Set("Location", "/jobs/1")
			w.WriteHeader(http.StatusAccepted)
		case done.Load():
			_, _ = io.WriteString(w, `{"status":"SUCCEEDED"}`)
		default:
			_, _ = io.WriteString(w, `{"status":"IN_PROGRESS"}`)
		}
	}
	b.Webhook("pay", func(s *v1alpha1.WebhookSpec) {
		bearer(s)
		s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: 50 * time.Millisecond}
	})
	b.Start(nil)
	op := b.Schedule(operations.Request{Webhooks: []string{"pay"}})
	b.Eventually("polled",
		func() bool { w := b.Get().Status.Webhooks; return len(w) == 1 && w[0].LastPollTimestamp != nil })
	b.label(secretsResource, "login", nil)
	b.waitsFor("secret login")
	done.Store(true)
	b.label(secretsResource, "login", "true")
	if v := operations.ViewOf(b.End(op)); v.Status != operations.Succeeded {
		t.Errorf("outcome %+v", v)
	}
}

// TestNeverReleased: an operation that waits for credentials ends with its timeout, and reports what it waited for. Its
// compensation and notification are given up.
func TestNeverReleased(t *testing.T) {
	b := setup(t)
	b.secret("login", map[string]string{"token": "t-o-k"})
	b.Webhook("good", nil)
	b.Webhook("pay", bearer)
	watch := newStopwatch()
	b.Start(func(o *executor.Options) { o.Now = watch.now })
	op := b.Schedule(operations.Request{
		Webhooks: []string{"good", "pay"}, Compensate: []string{"pay", "good"}, Notify: "pay", Timeout: time.Hour,
	})
	b.waitsFor("secret login")
	watch.pass(2 * time.Hour)
	b.Touch(op.Name) // wake it, so that it reads the clock
	ended := b.End(op)
	v := operations.ViewOf(ended)
	if v.Reason != v1alpha1.ReasonTimedOut || !strings.Contains(v.Error, v1alpha1.LabelWebhookCredentials) {
		t.Errorf("outcome %+v", v)
	}
	s := ended.Status
	if len(s.Compensations) != 2 || s.Compensations[0].State != v1alpha1.PhaseFailed ||
		s.Compensations[1].State != v1alpha1.PhaseSuccess ||
		s.Notification.State != v1alpha1.PhaseFailed || !strings.Contains(s.Notification.Message, "not released") {
		t.Errorf("compensations %+v, notification %+v", s.Compensations, s.Notification)
	}
}

// TestAnyCredentials: if no release is required, credentials are used without one.
func TestAnyCredentials(t *testing.T) {
	b := setup(t)
	b.secret("login", map[string]string{"token": "t-o-k"})
	b.Create(accountsResource, "ServiceAccount",
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "caller", Namespace: b.Namespace}})
	b.Webhook("pay", bearer)
	b.Webhook("tell", func(s *v1alpha1.WebhookSpec) {
		s.Auth = &v1alpha1.WebhookAuth{ServiceAccountToken: &v1alpha1.ServiceAccountTokenAuth{
			Audience: "crm", ServiceAccountName: "caller",
		}}
	})
	b.Start(func(o *executor.Options) { o.AnyCredentials, o.ServiceAccounts = true, nil })
	if v := operations.ViewOf(
		b.End(b.Schedule(operations.Request{Webhooks: []string{"pay", "tell"}})),
	); v.Status != operations.Succeeded {
		t.Errorf("outcome %+v", v)
	}
}
