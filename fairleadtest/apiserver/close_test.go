package apiserver_test

import (
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// TestCloseMeetsRequests closes servers in the moment in which a request arrives. Over HTTP/2 a handler may begin after
// its connection has ended, so nothing but the server itself puts the two in order; here there is no connection at all.
func TestCloseMeetsRequests(t *testing.T) {
	t.Parallel()
	for range 50 {
		s, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() {
				defer func() { _ = recover() }() // net/http's way to abort a request
				s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/configmaps", nil))
			})
		}
		s.Close()
		asking.Wait()
	}
}

// A closed server is no longer in memory, also if OnChange refers to one of its clients. client-go keeps the functions
// that dial in a global map.
func TestClosedServerIsCollected(t *testing.T) {
	collected := make(chan struct{})
	serve := func() {
		var client kubernetes.Interface
		s, err := apiserver.New(apiserver.Options{Pipe: true, OnChange: func(apiserver.Change) { runtime.KeepAlive(client) }})
		if err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(s, func(done chan struct{}) { close(done) }, collected)
		defer s.Close()
		client = kubernetes.NewForConfigOrDie(s.Config())
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		if _, err := client.CoreV1().ConfigMaps("a").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	serve()
	deadline := time.After(testlimit.Wait)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		runtime.GC()
		select {
		case <-collected:
			return
		case <-deadline:
			t.Fatal("the server is still in memory")
		case <-tick.C: // the map forgets the function in a goroutine of its own
		}
	}
}
