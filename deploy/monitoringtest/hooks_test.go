package monitoringtest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// hooks runs a program that serves webhooks of the API server. In trouble its hooks fail, other writers change its
// configuration, and strangers send requests. Later it cannot renew its certificate.
func (w *world) hooks(pod string) {
	w.server.Register(apiserver.Resource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations",
		Kind: "ValidatingWebhookConfiguration",
	})
	rt := fairlead.New(w.server.Config())
	listener := newPipeListener()
	h := admission.Serve(rt, admission.Options{
		Name: "hooks", Namespace: "hooks-system", URL: "https://hooks.test", Listener: listener, Linger: -1,
		Certificates: admission.Certificates{Leaf: 26 * time.Hour},
	})
	admission.Validate(h, admission.Rule{OnFailure: admission.FailClosed, Name: "maps.hooks.test"},
		func(context.Context, *admission.Request[corev1.ConfigMap]) error {
			if w.trouble.Load() {
				panic("boom")
			}
			return nil
		})
	asks := &http.Client{Transport: &http.Transport{
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return listener.dial() },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the identity of the server does not matter here
	}}
	w.stops = append(w.stops, asks.CloseIdleConnections)
	w.start("prod/hooks", pod, rt)
	ask := func(kind string) {
		body := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"%d","operation":"CREATE",
			"kind":{"version":"v1","kind":"ConfigMap"},"resource":{"version":"v1","resource":"configmaps"},"namespace":"a","name":"x",
			"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"a","name":"x"}}}}`, w.round)
		answer, err := asks.Post("https://hooks.test/validate/maps.hooks.test", kind, bytes.NewReader([]byte(body)))
		if err != nil {
			w.t.Errorf("a hook does not answer: %v", err)
			return
		}
		answer.Body.Close()
		if w.round > 2 && !w.failed && answer.StatusCode != http.StatusOK {
			w.t.Errorf("a hook answers %s", answer.Status)
		}
	}
	configuration := schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations",
	}
	w.act = append(w.act, func() {
		if w.round < 2 {
			return // not configured yet
		}
		ask("application/json")
		if !w.trouble.Load() {
			return
		}
		ask("text/plain")
		_ = w.server.Remove(configuration, metav1.NamespaceAll, "hooks") // the program restores it each minute
	})
}

// pipeListener is a listener in memory, whose connections do not block the time of a bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, errors.New("no listener")
	}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }
