package source_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/source"
)

// ours is a transport of the program that counts requests and closes.
type ours struct {
	*http.Transport
	mu       sync.Mutex
	requests int
	closed   int
}

func (o *ours) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	o.requests++
	o.mu.Unlock()
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer ours")
	return o.Transport.RoundTrip(r)
}

func (o *ours) CloseIdleConnections() {
	o.mu.Lock()
	o.closed++
	o.mu.Unlock()
	o.Transport.CloseIdleConnections()
}

// TestTransportOfTheCaller: all requests use the caller's transport, its decompressed bodies are read, and its
// connections stay open.
func TestTransportOfTheCaller(t *testing.T) {
	t.Parallel()
	s := &script{t: t, lists: []reply{list(5, object("a", 1))}, watches: []reply{watch(bookmark(9))}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer ours" || r.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("a request came with %v", r.Header)
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	transport := &ours{Transport: &http.Transport{}}
	defer transport.Transport.CloseIdleConnections()
	wrong := &rest.Config{Host: server.URL, BearerToken: "theirs", Timeout: time.Nanosecond}
	conn, err := connection.New(wrong, connection.Options{HTTPClient: &http.Client{
		Transport: transport, Timeout: time.Nanosecond,
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(t)
	src, err := source.New(source.Config{Connection: conn, Resource: configMaps, NoWatchList: true}, r.sink)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- src.Run(ctx) }()
	r.wait("the bookmark", func() bool { return r.version == "9" })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	conn.Close()
	transport.mu.Lock()
	defer transport.mu.Unlock()
	if transport.requests != 2 || transport.closed != 0 {
		t.Errorf("%d requests used the transport, its connections were closed %d times", transport.requests, transport.closed)
	}
}

// TestTransportOfTheCallerGetsStuck: a stuck request is abandoned and repeated.
func TestTransportOfTheCallerGetsStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		var network hole
		transport := &ours{Transport: &http.Transport{DialContext: network.wrap(server.Dial)}}
		defer transport.Transport.CloseIdleConnections()
		conn, err := connection.New(server.Config(), connection.Options{HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r := newRecorder(t)
		src, err := source.New(source.Config{Connection: conn, Resource: configMaps}, r.sink)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- src.Run(ctx) }()
		time.Sleep(10 * time.Second)
		network.swallow()
		late := &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "late"},
		}
		if _, err := server.Put(late); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		same(t, server, r)
		if transport.closed == 0 {
			t.Error("stuck idle connections stay open")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.DropConnections()
	})
}
