package hookbed

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
)

// Service tests hooks behind a Service, whose name the API server uses for the program. system is a namespace, and
// also the name of the configuration.
func Service(t *testing.T, cfg *rest.Config, system string) {
	t.Helper()
	b := New(t, cfg)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rt := fairlead.New(cfg)
	var ahead atomic.Int64
	h := admission.Serve(rt, admission.Options{
		Name: system, Namespace: system, Service: "hooks", ServicePort: 8443, Listener: listener, Linger: -1,
		Certificates: admission.Certificates{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }},
		Only:         &metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has-this"}},
	})
	admission.Mutate(h, admission.Rule{OnFailure: admission.FailClosed}, Allow)
	done := make(chan error, 1)
	go func() { done <- rt.Run(b.Ctx) }()
	<-h.Ready()
	configurations := b.API.AdmissionregistrationV1().MutatingWebhookConfigurations()
	is, err := configurations.Get(b.Ctx, system, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := configurations.Delete(b.Ctx, system, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	path, port := "/mutate/mutate.configmap.v1.core", int32(8443)
	config := is.Webhooks[0].ClientConfig
	want := &admissionregistrationv1.ServiceReference{Namespace: system, Name: "hooks", Path: &path, Port: &port}
	if diff := cmp.Diff(want, config.Service); diff != "" {
		t.Error(diff)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CABundle)
	server := &tls.Config{RootCAs: roots, ServerName: "hooks." + system + ".svc"}
	conn, err := tls.Dial("tcp", listener.Addr().String(), server)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	ready := func() string {
		w := httptest.NewRecorder()
		rt.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return fmt.Sprint(w.Code, " ", w.Body.String())
	}
	if got := ready(); !strings.HasPrefix(got, "200 ") {
		t.Error(got)
	}
	ahead.Store(int64(31 * 24 * time.Hour))
	if got := ready(); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "the certificate expired") {
		t.Error(got)
	}
	listener.Close() // the end of serving ends the runtime
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run: %v", err)
	}
}
