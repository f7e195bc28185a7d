package admission_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/admission/admissiontest"
)

// bench is what a test has against the API server.
type bench struct {
	t   *testing.T
	ctx context.Context
	api *kubernetes.Clientset
}

func setup(t *testing.T) *bench {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return &bench{t, ctx, kubernetes.NewForConfigOrDie(env.Config(t))}
}

// eventually waits until fn says nothing; the API server learns of changes a moment later.
func (b *bench) eventually(what string, fn func() (lacks string)) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		lacks := fn()
		if lacks == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatalf("%s: %s", what, lacks)
		}
	}
}

// bundle returns the caBundle by which the API server knows the first validating hook.
func (b *bench) bundle(h *admissiontest.Hooks) []byte {
	b.t.Helper()
	c, err := b.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(b.ctx, h.Options.Name,
		metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return c.Webhooks[0].ClientConfig.CABundle
}

// caller is who knows the hooks as the API server does.
func caller(bundle []byte) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return &http.Client{
		Timeout: 20 * time.Second,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true, ExpectContinueTimeout: 10 * time.Second,
		},
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func configMap(name string, data ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{}}
	for _, d := range data {
		k, v, _ := strings.Cut(d, "=")
		m.Data[k] = v
	}
	return m
}
