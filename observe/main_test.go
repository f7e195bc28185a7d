package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	widgets    = apiserver.Widgets().GVR()
)

// Maps is the selector of most tests.
var Maps = observe.Selector("maps")

// Widget is a custom resource that counts its decodings.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              WidgetSpec `json:"spec"`
}

type WidgetSpec struct {
	Colour string `json:"colour"`
}

// decodes counts by name of the object, so that tests do not affect each other.
var decodes sync.Map

func (w *Widget) UnmarshalJSON(raw []byte) error {
	type plain Widget
	if err := json.Unmarshal(raw, (*plain)(w)); err != nil {
		return err
	}
	n, _ := decodes.LoadOrStore(w.Name, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	return nil
}

func decoded(name string) int64 {
	n, _ := decodes.LoadOrStore(name, new(atomic.Int64))
	return n.(*atomic.Int64).Load()
}

// Gadget is a widget that is checked before the decoding. Its decodings are counted by calls of GetObjectKind.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              WidgetSpec `json:"spec"`
}

func (g *Gadget) GetObjectKind() schema.ObjectKind {
	n, _ := decodes.LoadOrStore(g.Name, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	return &g.TypeMeta
}

func (g *Gadget) DeepCopyObject() runtime.Object {
	return (*Gadget)((*Widget)(g).DeepCopyObject().(*Widget))
}

func (w *Widget) DeepCopyObject() runtime.Object {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (p *Plain) DeepCopyObject() runtime.Object {
	return (*Plain)((*Widget)(p).DeepCopyObject().(*Widget))
}

// host is a server, a cache and a registry.
type host struct {
	*observe.Registry
	t      testing.TB
	server *apiserver.Server
	cache  *store.Cache
	log    *testlog.Book
	end    func()
}

func testScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	_ = scheme.AddToScheme(s) // a scheme of types that are known to be valid
	gvk := apiserver.Widgets().GVK()
	s.AddKnownTypeWithName(gvk, &Widget{})
	s.AddKnownTypeWithName(gvk.GroupVersion().WithKind("Plain"), &Plain{})
	s.AddKnownTypeWithName(gvk.GroupVersion().WithKind("Gadget"), &Gadget{})
	metav1.AddToGroupVersion(s, gvk.GroupVersion())
	return s
}

func testMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, meta.RESTScopeNamespace)
	m.Add(apiserver.Widgets().GVK(), meta.RESTScopeNamespace)
	plain := apiserver.Widgets().GVK().GroupVersion()
	m.AddSpecific(plain.WithKind("Plain"), widgets, widgets, meta.RESTScopeNamespace)
	m.AddSpecific(plain.WithKind("Gadget"), widgets, widgets, meta.RESTScopeNamespace)
	return m
}

func newHost(t testing.TB, o observe.RegistryOptions, server apiserver.Options) *host {
	t.Helper()
	s, err := apiserver.New(server)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, server: s, log: &testlog.Book{}}
	log := slog.New(slog.NewTextHandler(h.log, nil))
	h.cache, err = store.NewCache(store.CacheOptions{
		Config: s.Config(), Scheme: testScheme(), Mapper: testMapper(), Logger: log, Linger: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Stores == nil {
		o.Stores = h.cache
	}
	o.Scheme, o.Logger = testScheme(), log
	h.Registry = observe.NewRegistry(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := h.cache.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	h.end = func() {
		over, stop := context.WithCancel(context.Background())
		stop()
		if err := h.Stop(over); err != nil {
			t.Errorf("Stop: %v", err)
		}
		cancel()
		<-ended
		s.Close()
	}
	return h
}

// bubble runs a test on the fake clock.
func bubble(t *testing.T, test func(t *testing.T, h *host)) {
	t.Helper()
	bubbleWith(t, observe.RegistryOptions{}, test)
}

func bubbleWith(t *testing.T, o observe.RegistryOptions, test func(t *testing.T, h *host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, o, apiserver.Options{Pipe: true})
		defer h.end()
		test(t, h)
	})
}

func (h *host) start() {
	h.t.Helper()
	if err := h.Start(context.Background()); err != nil {
		h.t.Fatal(err)
	}
	synctest.Wait()
}

func configMap(ns, name string, data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: map[string]string{}}
	for i := 0; i+1 < len(data); i += 2 {
		c.Data[data[i]] = data[i+1]
	}
	return c
}

func widget(name, colour string) *Widget {
	return &Widget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.fairlead.io/v1", Kind: "Widget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: WidgetSpec{Colour: colour},
	}
}

// put stores a config map with a single value.
func (h *host) put(key, value string) {
	h.t.Helper()
	ns, name, _ := strings.Cut(key, "/")
	if _, err := h.server.Put(configMap(ns, name, "v", value)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) remove(key string) {
	h.t.Helper()
	ns, name, _ := strings.Cut(key, "/")
	if err := h.server.Remove(configMaps, ns, name); err != nil {
		h.t.Fatal(err)
	}
}

// story records the events of an observer, one line per event.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

// take returns the lines so far and removes them.
func (s *story) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

// describeEvent formats an event of a config map as "Added initial a/x =1" or "Modified a/x 1=2".
func describeEvent(e observe.Event[corev1.ConfigMap]) string {
	value := func(c *corev1.ConfigMap) string {
		if c == nil {
			return ""
		}
		return c.Data["v"]
	}
	line := e.Type.String()
	if e.Initial {
		line += " initial"
	}
	if e.Inferred {
		line += " inferred"
	}
	if e.Key != (store.Key{}) {
		line += fmt.Sprintf(" %s %s=%s", e.Key, value(e.Prior()), value(e.Object()))
	}
	return line
}

func (s *story) observe(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
	s.add(describeEvent(e))
	return nil
}

func sourceOf(h *host, s observe.Selector, options ...source.Option) *observe.Origin {
	return observe.Source[corev1.ConfigMap](h, s, options...)
}
