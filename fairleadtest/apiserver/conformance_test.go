package apiserver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// informerKinds are the three ways in which client-go keeps a cache of pods.
func informerKinds(t *testing.T, cfg *rest.Config) map[string]func() cache.SharedIndexInformer {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	json := rest.CopyConfig(cfg)
	json.ContentType, json.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	protobuf := rest.CopyConfig(cfg)
	protobuf.ContentType, protobuf.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	cj, err := kubernetes.NewForConfig(json)
	must(err)
	cp, err := kubernetes.NewForConfig(protobuf)
	must(err)
	dyn, err := dynamic.NewForConfig(cfg)
	must(err)
	meta, err := metadata.NewForConfig(cfg)
	must(err)
	return map[string]func() cache.SharedIndexInformer{
		"typed JSON": func() cache.SharedIndexInformer {
			return informers.NewSharedInformerFactory(cj, 0).Core().V1().Pods().Informer()
		},
		"typed protobuf": func() cache.SharedIndexInformer {
			return informers.NewSharedInformerFactory(cp, 0).Core().V1().Pods().Informer()
		},
		"dynamic": func() cache.SharedIndexInformer {
			return dynamicinformer.NewDynamicSharedInformerFactory(dyn, 0).ForResource(pods).Informer()
		},
		"metadata": func() cache.SharedIndexInformer {
			return metadatainformer.NewSharedInformerFactory(meta, 0).ForResource(pods).Informer()
		},
	}
}

// contents are the keys and versions in a cache or in the server.
func contents[T any](objects []T) string {
	var out []string
	for _, o := range objects {
		m := any(o).(metav1.Object)
		out = append(out, fmt.Sprintf("%s/%s@%s/%s", m.GetNamespace(), m.GetName(), m.GetResourceVersion(),
			m.GetLabels()["app"]))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestInformersFollow runs client-go's informers against the server, with and without WatchList, through writes, ended
// streams, 410s and a crash, on the fake clock: the cache must be equal to the server at each rest.
func TestInformersFollow(t *testing.T) {
	t.Parallel()
	for _, opts := range []apiserver.Options{{Pipe: true}, {Pipe: true, NoWatchList: true}} {
		synctest.Test(t, func(t *testing.T) {
			s, err := apiserver.New(opts)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			cfg := s.Config()
			if !opts.Pipe {
				t.Fatal("only a pipe stays in the bubble")
			}
			for i := range 620 { // more than a page
				if _, err := s.Put(newPod(fmt.Sprintf("p%04d", i))); err != nil {
					t.Fatal(err)
				}
			}
			kinds := informerKinds(t, cfg)
			running := map[string]cache.SharedIndexInformer{}
			ctx, cancel := context.WithCancel(t.Context())
			for name, informer := range kinds {
				running[name] = informer()
				go running[name].RunWithContext(ctx)
			}
			check := func(when string) {
				t.Helper()
				<-time.After(10 * time.Minute) // of the fake clock: back-off has ended
				synctest.Wait()
				stored, err := s.Objects(pods)
				if err != nil {
					t.Fatal(err)
				}
				want := contents(stored)
				for name, informer := range running {
					if got := contents(informer.GetStore().List()); got != want {
						t.Errorf("%s, %s: the cache has %d objects, the server %d", when, name, len(informer.GetStore().List()),
							len(stored))
					}
				}
			}
			check("after the first list")
			change := func(i int) {
				p := newPod(fmt.Sprintf("p%04d", i))
				p.Labels["app"] = "changed"
				if _, err := s.Put(p); err != nil {
					t.Fatal(err)
				}
				if err := s.Remove(pods, "a", fmt.Sprintf("p%04d", i+100)); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Put(newPod(fmt.Sprintf("q%04d", i))); err != nil {
					t.Fatal(err)
				}
			}
			change(1)
			check("after writes")
			for _, w := range s.Watches(apiserver.Match{}) {
				w.End()
			}
			change(2)
			check("after streams ended")
			s.Down()
			change(3)
			s.Compact(0)
			if err := s.Up(); err != nil {
				t.Fatal(err)
			}
			check("after a crash and compaction")
			for _, w := range s.Watches(apiserver.Match{}) {
				w.Error(apiserver.Expired())
			}
			s.On(apiserver.Match{Verb: "watch", Times: 3}, apiserver.Answer(apiserver.TooManyRequests(1)))
			s.On(apiserver.Match{Verb: "list", Page: 2, Times: 2}, apiserver.ExpireContinue(false))
			change(4)
			check("after 410, 429 and expired pages")
			cancel()
			s.Close()
			synctest.Wait()
		})
	}
}

func TestProtobufIsSpoken(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	cfg := s.Config()
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	c, ctx := typedFor(t, cfg), t.Context()
	if _, err := c.CoreV1().Pods("a").Create(ctx, newPod("p"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := c.CoreV1().Pods("a").Watch(ctx, metav1.ListOptions{AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != "ADDED" || e.Object.(*corev1.Pod).Spec.NodeName != "n1" {
		t.Errorf("%v", e)
	}
	if e := <-w.ResultChan(); e.Type != "BOOKMARK" ||
		e.Object.(*corev1.Pod).Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("%v", e)
	}
	s.Bookmark(apiserver.Match{})
	if e := <-w.ResultChan(); e.Type != "BOOKMARK" || e.Object.(*corev1.Pod).ResourceVersion != s.Version(s.Revision()) {
		t.Errorf("%v", e)
	}
	s.Watches(apiserver.Match{})[0].Error(apiserver.Expired())
	if e := <-w.ResultChan(); e.Type != "ERROR" || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("%v", e)
	}
	list, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 5})
	if err != nil || len(list.Items) != 1 || list.Items[0].Spec.Containers[0].Image != "i" || list.ResourceVersion == "" {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := c.CoreV1().Pods("a").Get(ctx, "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	uid := list.Items[0].UID
	grace := int64(0)
	if err := c.CoreV1().Pods("a").Delete(ctx, "p",
		metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		t.Error(err)
	}
	if _, err := s.Object(pods, "a", "p"); !apierrors.IsNotFound(err) {
		t.Errorf("delete options in protobuf were not understood: %v", err)
	}
	for _, r := range s.Log().Requests {
		if r.Verb == "watch" && !strings.Contains(r.Header.Get("Accept"), "protobuf") {
			t.Errorf("the test did not ask for protobuf: %v", r.Header)
		}
	}
	dyn, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dyn.Resource(widgets).Namespace("a").Create(ctx, widget("w", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m, err := metadata.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	if l, err := m.Resource(widgets).List(ctx, metav1.ListOptions{}); err != nil || len(l.Items) != 1 ||
		l.Items[0].UID == "" {
		t.Errorf("metadata of a custom resource: %v, %v", l, err)
	}
	r := newRaw(t, s)
	if got := r.get("/apis/example.fairlead.io/v1/widgets"); got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", got.Header)
	}
}

func TestDiscoveryMapsKinds(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	d, err := discovery.NewDiscoveryClientForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(d)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, r := range apiserver.DefaultResources() {
		m, err := mapper.RESTMapping(r.GVK().GroupKind(), r.Version)
		if err != nil || m.Resource != r.GVR() || (m.Scope.Name() == "namespace") != r.Namespaced {
			t.Errorf("%s: %v, %v", r.GVK(), m, err)
		}
	}
	if v, err := d.ServerVersion(); err != nil || v.Major != "1" {
		t.Errorf("%v, %v", v, err)
	}
}

func TestReviewsAndTokens(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{
		Token: "secret",
		Authorize: func(r authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
			return authorizationv1.SubjectAccessReviewStatus{Allowed: r.User == "jane", Reason: "test"}
		},
	})
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		cfg := s.Config()
		cfg.ContentType, cfg.AcceptContentTypes = contentType, contentType
		c, ctx := typedFor(t, cfg), t.Context()
		for token, want := range map[string]bool{"secret": true, "other": false} {
			r, err := c.AuthenticationV1().TokenReviews().Create(ctx,
				&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
			if err != nil || r.Status.Authenticated != want {
				t.Errorf("%s: %v, %v", token, r, err)
			}
		}
		for user, want := range map[string]bool{"jane": true, "joe": false} {
			r, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user},
			}, metav1.CreateOptions{})
			if err != nil || r.Status.Allowed != want {
				t.Errorf("%s: %v, %v", user, r, err)
			}
		}
		if _, err := c.CoreV1().ServiceAccounts("a").CreateToken(ctx, "none", &authenticationv1.TokenRequest{},
			metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("token of nobody: %v", err)
		}
		if _, err := s.Put(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "sa"}}); err != nil {
			t.Fatal(err)
		}
		tr, err := c.CoreV1().ServiceAccounts("a").CreateToken(ctx, "sa", &authenticationv1.TokenRequest{},
			metav1.CreateOptions{})
		if err != nil || !strings.HasPrefix(tr.Status.Token, "a/sa/") || tr.Status.ExpirationTimestamp.IsZero() {
			t.Errorf("%v, %v", tr, err)
		}
		s.SetToken("rotated")
		if _, err := c.CoreV1().Pods("a").List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("an old token: %v", err)
		}
		s.SetToken("secret")
	}
}

// TestPreloadedObjectsAreObjects compares bytes that were loaded with what clients make of them.
func TestPreloadedObjectsAreObjects(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{})
	const n = 3000
	encode := func(kind string) func(i int, version string) apiserver.Encoded {
		return func(i int, version string) apiserver.Encoded {
			name := fmt.Sprintf("p%05d", n-i)
			return apiserver.Encoded{
				Namespace: "a", Name: name, UID: "u" + name, Labels: map[string]string{"app": name},
				JSON: fmt.Appendf(nil,
					`{%s"metadata":{"name":%q,"namespace":"a","uid":"u%s","resourceVersion":%q,"labels":{"app":%q}},"spec":{"nodeName":"n","containers":[{"name":"c"}]}}`,
					kind, name, name, version, name),
			}
		}
	}
	if err := s.Preload(pods, n, encode(`"kind":"Pod","apiVersion":"v1",`)); err != nil {
		t.Fatal(err)
	}
	if err := s.Preload(pods, 10, encode(``)); err != nil { // another form, and a second time: MODIFIED
		t.Fatal(err)
	}
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		cfg := s.Config()
		cfg.ContentType, cfg.AcceptContentTypes = contentType, contentType
		c := typedFor(t, cfg).CoreV1().Pods("a")
		list, err := c.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != n || list.Items[0].Name != "p00001" ||
			list.Items[n-1].ResourceVersion != s.Version(n+2) ||
			list.Items[7].Spec.NodeName != "n" {
			t.Fatalf("%d items, %v", len(list.Items), err)
		}
		w, err := c.Watch(t.Context(), metav1.ListOptions{
			ResourceVersion: list.ResourceVersion, FieldSelector: "spec.nodeName=n",
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Publish(pods, func(version string) apiserver.Encoded {
			return encode(`"kind":"Pod","apiVersion":"v1",`)(5, version)
		}); err != nil {
			t.Fatal(err)
		}
		if e := <-w.ResultChan(); e.Type != "MODIFIED" ||
			contents([]any{e.Object}) != "a/p02995@"+s.Version(s.Revision())+"/p02995" {
			t.Errorf("%v", e)
		}
		w.Stop()
	}
	got, err := s.Object(pods, "a", "p00001")
	if node, _, _ := unstructured.NestedString(got.Object, "spec", "nodeName"); err != nil || node != "n" ||
		got.GetKind() != "Pod" {
		t.Errorf("%v, %v", got, err)
	}
}

func BenchmarkListPreloaded(b *testing.B) {
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	pad := strings.Repeat("x", 3000)
	if err := s.Preload(configMaps, 10000, func(i int, version string) apiserver.Encoded {
		name := fmt.Sprintf("c%06d", i)
		return apiserver.Encoded{
			Namespace: "a", Name: name,
			JSON: fmt.Appendf(nil,
				`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"a","resourceVersion":%q},"data":{"k":%q}}`, name, version, pad),
		}
	}); err != nil {
		b.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		body, err := c.CoreV1().RESTClient().Get().Resource("configmaps").SetHeader("Accept",
			"application/json").Stream(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		buf, total := make([]byte, 1<<20), 0
		for {
			n, err := body.Read(buf)
			if total += n; err != nil {
				break
			}
		}
		body.Close()
		b.SetBytes(int64(total))
	}
}
