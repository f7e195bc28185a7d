package executor_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// TestSecretsStayHidden searches everything that the controller writes for the values of secrets.
func TestSecretsStayHidden(t *testing.T) {
	b := setup(t)
	const secret = "correct-horse-battery"
	b.Create(corev1.SchemeGroupVersion.WithResource("secrets"), "Secret", &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "login", Namespace: b.Namespace,
			Labels: map[string]string{v1alpha1.LabelWebhookCredentials: "true"},
		},
		Data: map[string][]byte{"token": []byte(secret + "\n")}, // with a newline, as a file has it
	})
	asked := make(chan string, 1)
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
		switch path {
		case "/echo":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "bad token "+r.Header.Get("Authorization")+" at "+url.QueryEscape(secret))
		case "/back":
			asked <- operationbed.CallbackIn(r)
		}
	}
	auth := &v1alpha1.WebhookAuth{Bearer: &v1alpha1.SecretAuth{SecretRef: v1alpha1.SecretReference{Name: "login"}}}
	b.Webhook("echo", func(s *v1alpha1.WebhookSpec) { s.Auth, s.Response.Error = auth, "string(response.body)" })
	b.Webhook("back", func(s *v1alpha1.WebhookSpec) { operationbed.CallbackHook(s); s.Auth = auth })
	log := &syncBuffer{}
	var e *executor.Executor
	events, err := executor.NewEvents(b.Calls)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Close)
	b.StartWith(func(o *executor.Options) {
		o.Logger, o.Recorder = log.logger(), events
		o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
	}, func(got *executor.Executor) { e = got })
	var tokens []string
	for _, name := range []string{"echo", "back"} {
		op := b.Schedule(operations.Request{Webhooks: []string{name}, Resource: operations.Resource{Type: "app", ID: name}})
		if name == "back" {
			tok := operationbed.Token(b.Received(asked))
			tokens = append(tokens, tok)
			if err := e.Taker().Take(b.Ctx, tok, false,
				"bad token "+secret+" for http://fairlead.example/callbacks/"+tok); err != nil {
				t.Fatal(err)
			}
		}
		ended := b.End(op)
		if v := operations.ViewOf(ended); v.Reason != v1alpha1.ReasonWebhookFailed || !strings.Contains(v.Error, "masked") {
			t.Errorf("outcome %+v", v)
		}
		raw, _ := json.Marshal(ended)
		b.hidden("status", string(raw), secret, tokens...)
	}
	b.End(b.Schedule(operations.Request{}))
	clients := kubernetes.NewForConfigOrDie(b.Config)
	b.Eventually("events of start, failure and end written", func() bool {
		list, err := clients.CoreV1().Events(b.Namespace).List(b.Ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := json.Marshal(list)
		b.hidden("events", string(raw), secret, tokens...)
		said := make(map[string]int)
		for _, event := range list.Items {
			said[event.Type+" "+event.Reason]++
		}
		return cmp.Equal(said, map[string]int{"Normal Started": 3, "Warning WebhookFailed": 2, "Normal Succeeded": 1})
	})
	b.hidden("log", log.String(), secret, tokens...)
}

func (b *bench) hidden(where, text, secret string, others ...string) {
	b.T.Helper()
	for _, s := range append(others, secret) {
		if s != "" && strings.Contains(text, s) {
			b.T.Errorf("a secret is in the %s:\n%s", where, text)
		}
	}
}

// syncBuffer collects a log.
type syncBuffer struct{ testlog.Book }

func (b *syncBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
