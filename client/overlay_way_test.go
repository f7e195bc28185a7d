package client_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/store"
)

// clientset returns a clientset of client-go whose writes are overlaid on the cache.
func (c *cluster) clientset(change ...func(*rest.Config)) *kubernetes.Clientset {
	c.t.Helper()
	cfg := c.server.Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return client.Overlay(next, c.cache, client.OverlayOptions{})
	})
	for _, fn := range change {
		fn(cfg)
	}
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.stop = append(c.stop, func() {
		utilnet.CloseIdleConnectionsFor(cs.RESTClient().(*rest.RESTClient).Client.Transport)
	})
	return cs
}

type configMapsOf = typedcorev1.ConfigMapInterface

func (c *cluster) configMaps(change ...func(*rest.Config)) typedcorev1.ConfigMapInterface {
	return c.clientset(change...).CoreV1().ConfigMaps("a")
}

// shown returns the version of a config map in the first store.
func (c *cluster) shown(name string) string {
	c.t.Helper()
	r, ok := c.cache.Lookup(configMaps)[0].Get(key(name))
	if !ok {
		return "nothing"
	}
	var cm corev1.ConfigMap
	if err := r.DecodeInto(&cm); err != nil {
		c.t.Fatal(err)
	}
	return cm.Data["k"]
}

const webPath = "/api/v1/namespaces/a/configmaps/web"

// followOthers subscribes to the writes of clients other than a controller.
func (c *cluster) followOthers() *store.Cursor {
	of := store.SubscribeOptions{From: store.FromNow, HoldWrites: "controller"}
	return c.cache.Stores(configMaps)[0].Subscribe(of)
}

// asController returns a context for the writes of a controller.
func (c *cluster) asController() context.Context {
	return binding.With(c.ctx, binding.Binding{Write: store.WriteContext{Owner: "controller", Primary: key("web")}})
}

// holdWatches blocks the events of all watches.
func (c *cluster) holdWatches() {
	hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
	c.stop = append(c.stop, hold.Release)
}

// The overlay understands the requests of client-go in both encodings and both versions of HTTP.
func TestOverlayWire(t *testing.T) {
	t.Parallel()
	for _, media := range []string{"application/json", protobufMedia} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprint(media, " HTTP/2 ", http2), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := setup{watch: []string{"ConfigMap"}}
					s.server.HTTP2 = http2
					c := start(t.Context(), t, s)
					defer c.close()
					kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
					untyped, err := c.cache.Open(store.Request{Kind: kind, Unstructured: true})
					if err != nil {
						t.Fatal(err)
					}
					defer untyped.Release()
					<-untyped.Synced()
					c.holdWatches()
					asks := c.requests("list")
					cms := c.configMaps(func(cfg *rest.Config) { cfg.ContentType = media })
					made, err := cms.Create(c.ctx, configMap("web", "k", "1"), metav1.CreateOptions{})
					if err != nil || c.shown("web") != "1" {
						t.Fatalf("%q is shown (%v)", c.shown("web"), err)
					}
					made.Data["k"] = "2"
					if _, err := cms.Update(c.ctx, made, metav1.UpdateOptions{}); err != nil || c.shown("web") != "2" {
						t.Errorf("%q is shown (%v)", c.shown("web"), err)
					}
					var u unstructured.Unstructured
					if r, ok := untyped.Get(key("web")); !ok || r.DecodeInto(&u) != nil {
						t.Error("the write is not shown to readers without a Go type")
					}
					if k, _, _ := unstructured.NestedString(u.Object, "data", "k"); k != "2" {
						t.Errorf("%q is shown to readers without a Go type", k)
					}
					err = cms.Delete(c.ctx, "web", metav1.DeleteOptions{})
					if err != nil || c.shown("web") != "nothing" {
						t.Errorf("%q is shown (%v)", c.shown("web"), err)
					}
					if n := c.requests("list"); n != asks {
						t.Errorf("%d requests to the server", n-asks)
					}
				})
			})
		}
	}
}

// A store that begins during a write has listed the state before it.
func TestOverlayLateStore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		opaque bool
		do     func(context.Context, configMapsOf) error
		want   string
	}{
		{reason: "an update", want: "2", do: func(ctx context.Context, cms configMapsOf) error {
			_, err := cms.Update(ctx, configMap("web", "k", "2"), metav1.UpdateOptions{})
			return err
		}},
		{reason: "opaque versions", opaque: true, want: "2", do: func(ctx context.Context, cms configMapsOf) error {
			_, err := cms.Update(ctx, configMap("web", "k", "2"), metav1.UpdateOptions{})
			return err
		}},
		{reason: "a delete", want: "nothing", do: func(ctx context.Context, cms configMapsOf) error {
			return cms.Delete(ctx, "web", metav1.DeleteOptions{})
		}},
		{reason: "a delete of many", want: "nothing", do: func(ctx context.Context, cms configMapsOf) error {
			return cms.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{server: apiserver.Options{OpaqueVersions: tc.opaque}})
				defer c.close()
				c.put(foreign("web", "k", "1"))
				write := apiserver.Match{Times: 1, Func: func(r apiserver.Request) bool {
					return r.Verb == "update" || strings.HasPrefix(r.Verb, "delete")
				}}
				c.server.On(write, apiserver.Before(func(ctx context.Context, _ apiserver.Request) {
					h, err := c.cache.Acquire(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
					if err != nil {
						t.Error(err)
						return
					}
					c.stop = append(c.stop, h.Release)
					<-h.Synced()
					c.holdWatches()
				}))
				if err := tc.do(c.ctx, c.configMaps()); err != nil {
					t.Fatal(err)
				}
				if got := c.shown("web"); got != tc.want {
					t.Errorf("%q is shown", got)
				}
			})
		})
	}
}

// An overlaid write enters and leaves a store by its selectors.
func TestOverlaySelectors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		option cache.Option
	}{
		{"labels", cache.Labels("in=yes")},
		{"fields that only the server can evaluate", cache.Fields("data.in=yes")},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				resources := apiserver.DefaultResources()
				for i := range resources {
					if resources[i].Kind == "ConfigMap" {
						in := func(o map[string]any) string {
							in, _, _ := unstructured.NestedString(o, "data", "in")
							return in
						}
						resources[i].Fields = map[string]func(map[string]any) string{"data.in": in}
					}
				}
				c := start(t.Context(), t, setup{
					watch: []string{"ConfigMap"}, sources: []cache.Option{tc.option},
					server: apiserver.Options{Resources: resources},
				})
				defer c.close()
				c.holdWatches()
				cms := c.configMaps()
				set := func(in, k string) {
					t.Helper()
					cm := configMap("web", "k", k, "in", in)
					cm.Labels = map[string]string{"in": in}
					if _, err := cms.Update(c.ctx, cm, metav1.UpdateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				_, err := cms.Create(c.ctx, configMap("web", "k", "1"), metav1.CreateOptions{})
				if err != nil || c.shown("web") != "nothing" {
					t.Errorf("%q is shown (%v)", c.shown("web"), err)
				}
				for _, step := range []struct{ in, k, want string }{
					{"yes", "2", "2"}, {"yes", "3", "3"}, {"no", "4", "nothing"}, {"yes", "5", "5"},
				} {
					if set(step.in, step.k); c.shown("web") != step.want {
						t.Errorf("after %v %q is shown", step, c.shown("web"))
					}
				}
			})
		})
	}
}

// A controller gets no events for writes in its name, and gets those of all other clients.
func TestOverlayOwnEchoes(t *testing.T) {
	t.Parallel()
	for _, media := range []string{"application/json", protobufMedia} {
		t.Run(media, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
				defer c.close()
				cursor := c.followOthers()
				defer cursor.Close()
				events := func() (out []string) {
					synctest.Wait()
					for evs := cursor.Take(100); len(evs) > 0; evs = cursor.Take(100) {
						for _, e := range evs {
							if e.Object != nil {
								out = append(out, fmt.Sprint(e.Type, " ", e.Key.Name))
							}
						}
					}
					return out
				}
				events()
				cms := c.configMaps(func(cfg *rest.Config) { cfg.ContentType = media })
				ours := c.asController()
				cm, err := cms.Create(ours, configMap("web", "k", "1"), metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				cm.Data["k"] = "2"
				if _, err = cms.Update(ours, cm, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				third, fourth := []byte(`{"data":{"k":"3"}}`), []byte(`{"data":{"k":"4"}}`)
				if _, err = cms.Patch(ours, "web", types.MergePatchType, third, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([]string(nil), events()); diff != "" {
					t.Errorf("own writes came back (-want +got):\n%s", diff)
				}
				if _, err = cms.Patch(c.ctx, "web", types.MergePatchType, fourth, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				if err := cms.Delete(ours, "web", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([]string{"MODIFIED web", "DELETED web"}, events()); diff != "" {
					t.Errorf("writes and deletions of others (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A transport that panics leaves no pending write that holds events back.
func TestOverlayPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		cursor := c.followOthers()
		defer cursor.Close()
		ours := c.asController()
		r, err := http.NewRequestWithContext(ours, "PUT", c.server.URL()+webPath, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			next := disturb.Func(func(*http.Request) (*http.Response, error) { panic("of the transport") })
			_, _ = client.Overlay(next, c.cache, client.OverlayOptions{}).RoundTrip(r)
		}()
		c.put(foreign("web", "k", "1"))
		synctest.Wait()
		var seen int
		for evs := cursor.Take(100); len(evs) > 0; evs = cursor.Take(100) {
			for _, e := range evs {
				if e.Object != nil {
					seen++
				}
			}
		}
		if seen != 1 {
			t.Errorf("%d events are delivered", seen)
		}
	})
}

// conventional is a transport with the optional methods of client-go, beneath one that hides them.
type conventional struct {
	http.RoundTripper
	cancelled *http.Request
	closed    bool
}

func (t *conventional) CancelRequest(r *http.Request) { t.cancelled = r }
func (t *conventional) CloseIdleConnections()         { t.closed = true }

// The overlay keeps the optional methods of client-go's transports.
func TestOverlayConventions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{watch: []string{"ConfigMap"}})
		defer c.close()
		var passed *http.Request
		release := make(chan struct{})
		beneath := &conventional{RoundTripper: disturb.Func(func(r *http.Request) (*http.Response, error) {
			passed = r
			<-release
			return canned{code: 409, body: []byte("{}")}.response(r), nil
		})}
		transport := client.Overlay(beneath, c.cache, client.OverlayOptions{})
		w, ok := transport.(utilnet.RoundTripperWrapper)
		if !ok || w.WrappedRoundTripper() != http.RoundTripper(beneath) {
			t.Error("WrappedRoundTripper does not return the inner transport")
		}
		(&http.Client{Transport: transport}).CloseIdleConnections()
		if !beneath.closed {
			t.Error("idle connections are not closed")
		}
		r, err := http.NewRequestWithContext(c.ctx, "PUT", c.server.URL()+webPath, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = transport.RoundTrip(r)
		}()
		synctest.Wait()
		transport.(interface{ CancelRequest(*http.Request) }).CancelRequest(r)
		if beneath.cancelled != passed {
			t.Error("another request was canceled than the sent one")
		}
		close(release)
		<-done
		if client.Overlay(beneath, nil, client.OverlayOptions{}) != http.RoundTripper(beneath) {
			t.Error("without a cache the transport is wrapped")
		}
	})
}

// A read is passed on unchanged.
func TestOverlayPassesReadsUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t.Context(), t, setup{})
		defer c.close()
		r, err := http.NewRequestWithContext(c.ctx, "GET", c.server.URL()+webPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		res := &http.Response{}
		transport := client.Overlay(disturb.Func(func(got *http.Request) (*http.Response, error) {
			if got != r {
				t.Error("the request was replaced")
			}
			return res, nil
		}), c.cache, client.OverlayOptions{})
		if n := testing.AllocsPerRun(100, func() { _, _ = transport.RoundTrip(r) }); n != 0 {
			t.Errorf("a read takes %v allocations", n)
		}
	})
}
