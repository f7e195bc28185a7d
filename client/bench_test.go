package client_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// BenchmarkGet reads one pod from the store, shared and as a copy.
func BenchmarkGet(b *testing.B) {
	ctx, c, _ := watchedPod(b)
	b.Run("shared", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := client.Get[corev1.Pod](ctx, c, key("web")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("copy", func(b *testing.B) {
		b.ReportAllocs()
		var p corev1.Pod
		for b.Loop() {
			if err := c.Get(ctx, key("web"), &p); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWriteStatus writes the status of a watched pod: by a bare request, which leaves readers behind, by Replace
// and by Update. The transport makes the responses, so that the server is not measured.
func BenchmarkWriteStatus(b *testing.B) {
	ctx, c, calls := watchedPod(b)
	var p corev1.Pod
	if err := c.Get(ctx, key("web"), &p); err != nil {
		b.Fatal(err)
	}
	n := 0
	bench := func(name string, write func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n++
				p.Status.Message = strconv.Itoa(n)
				if err := write(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	bench("request", func() error {
		a, err := call.Do(ctx, calls, call.Request{
			Verb: call.VerbUpdate, Resource: pods, Kind: "Pod", Namespace: "a", Name: "web", Subresource: "status", Object: &p,
		}, call.Policy{})
		if err != nil {
			return err
		}
		var h source.Header
		err = source.Scan(source.JSON, a.Raw, &h)
		p.ResourceVersion = string(h.ResourceVersion)
		return err
	})
	bench("replace", func() error { return c.Status().Replace(ctx, &p) })
	bench("update", func() error { return c.Status().Update(ctx, &p) })
}

// answering answers updates with the sent object, in rising versions.
type answering struct {
	next    http.RoundTripper
	version atomic.Int64
}

func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut {
		return a.next.RoundTrip(r)
	}
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var h source.Header
	if err := source.Scan(source.JSON, sent, &h); err != nil {
		return nil, err
	}
	version := strconv.FormatInt(1_000_000_000+a.version.Add(1), 10)
	body := bytes.Replace(sent, []byte(`"resourceVersion":"`+string(h.ResourceVersion)+`"`),
		[]byte(`"resourceVersion":"`+version+`"`), 1)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, nil
}

// watchedPod returns a client that watches one pod, and the client of its requests.
func watchedPod(b *testing.B) (context.Context, *client.Client, *call.Client) {
	b.Helper()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Close)
	ctx, stop := context.WithCancel(context.Background())
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	cache, err := store.NewCache(store.CacheOptions{Config: server.Config(), Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		b.Fatal(err)
	}
	stopped := make(chan error)
	go func() { stopped <- cache.Run(ctx) }()
	b.Cleanup(func() { stop(); <-stopped })
	h, err := store.AcquireFor[corev1.Pod](cache)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(h.Release)
	<-h.Synced()
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &answering{next: next} })
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(calls.Close)
	c, err := client.New(client.Options{Call: calls, Cache: cache, Mapper: mapper})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	if err := c.Create(ctx, pod("web")); err != nil {
		b.Fatal(err)
	}
	if err := c.WaitForCache(ctx); err != nil {
		b.Fatal(err)
	}
	return ctx, c, calls
}
