package fairlead_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// TestClientOfAnIdleRuntimeCloses uses the client of a runtime that never runs, as tests and tools do.
func TestClientOfAnIdleRuntimeCloses(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 10)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	c := fairlead.New(&rest.Config{Host: server.URL}).Client()
	for range 2 { // a request after Close opens another connection
		if _, err := c.Mapper().KindFor(corev1.SchemeGroupVersion.WithResource("configmaps")); err == nil {
			t.Fatal("a resource of a server without resources")
		}
		c.Close()
		select {
		case <-closed:
		case <-time.After(testlimit.Wait):
			t.Fatal("the connection is still open")
		}
	}
}
