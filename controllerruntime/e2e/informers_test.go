package e2e_test

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/controllerruntime"
	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
	"github.com/fairlead-io/fairlead/internal/source"
)

// TestUse is a program of client-go alone. A typed factory returns informers over stores, which show the writes of a
// wrapped client at once.
func TestUse(t *testing.T) {
	t.Parallel()
	cfg, namespace := rest.CopyConfig(env.Config(t)), env.Namespace(t)
	ours, err := controllerruntime.NewInformers(cfg, nil)
	peer.Must(t, err)
	cfg.Wrap(ours.Overlay)
	client, err := kubernetes.NewForConfig(cfg)
	peer.Must(t, err)
	factory := informers.NewSharedInformerFactory(client, 0)
	objs := []runtime.Object{&corev1.ConfigMap{}}
	peer.Must(t, controllerruntime.Use(ours, factory, objs, source.Namespaces(namespace)))

	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		if err := ours.Run(ctx); err != nil {
			t.Errorf("the stores ended with %v", err)
		}
	})
	e, maps := peer.NewEvents(), factory.Core().V1().ConfigMaps()
	_, err = maps.Informer().AddEventHandler(e)
	peer.Must(t, err)
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	factory.WaitForCacheSync(ctx.Done())
	if n := len(ours.Stores().Lookup(corev1.SchemeGroupVersion.WithResource("configmaps"))); n != 1 {
		t.Fatalf("there are %d stores", n)
	}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"},
		Data:       map[string]string{"v": "1"},
	}
	_, err = client.CoreV1().ConfigMaps(namespace).Create(ctx, cm, metav1.CreateOptions{})
	peer.Must(t, err)
	got, err := maps.Lister().ConfigMaps(namespace).Get("a")
	peer.Must(t, err)
	if got.Data["v"] != "1" {
		t.Errorf("the lister has %v", got)
	}
	if all, err := maps.Lister().List(labels.Everything()); err != nil || len(all) != 1 {
		t.Errorf("the lister has %v, %v", all, err)
	}
	(&peer.World{T: t, Ctx: t.Context()}).Want(e, "add a 1")
}

// TestSharedIndexInformer uses all of cache.Indexer and cache.SharedIndexInformer, as client-go defines them.
func TestSharedIndexInformer(t *testing.T) {
	t.Parallel()
	cfg, namespace := env.Config(t), env.Namespace(t)
	client, err := kubernetes.NewForConfig(cfg)
	peer.Must(t, err)
	for _, name := range []string{"a", "b"} {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Data:       map[string]string{"v": name},
		}
		_, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{})
		peer.Must(t, err)
	}
	ours, err := controllerruntime.NewInformers(cfg, nil)
	peer.Must(t, err)
	byValue := toolscache.Indexers{"v": func(o any) ([]string, error) {
		return []string{o.(*corev1.ConfigMap).Data["v"]}, nil
	}}
	stock := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(namespace)).Core().V1().ConfigMaps().Informer()
	mine, err := ours.Informer(&corev1.ConfigMap{}, 0, source.Namespaces(namespace))
	peer.Must(t, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = ours.Run(ctx) })
	for name, in := range map[string]toolscache.SharedIndexInformer{"stock": stock, "ours": mine} {
		t.Run(name, func(t *testing.T) {
			peer.Must(t, in.AddIndexers(byValue))
			if err := in.AddIndexers(byValue); err == nil {
				t.Error("indexers were added twice")
			}
			if in.HasSynced() || in.IsStopped() || len(in.GetStore().List()) != 0 {
				t.Error("it has started before it runs")
			}
			e := peer.NewEvents()
			reg, err := in.AddEventHandler(e)
			peer.Must(t, err)
			run, stop := context.WithCancel(ctx)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				in.RunWithContext(run)
			}()
			<-in.HasSyncedChecker().Done()
			<-reg.HasSyncedChecker().Done()
			in.RunWithContext(run) // a second time, which is refused
			if err := in.SetTransform(nil); err == nil {
				t.Error("the transform was changed while it runs")
			}
			if err := in.SetWatchErrorHandler(nil); err == nil {
				t.Error("the handler of errors was changed while it runs")
			}
			x, key := in.GetIndexer(), namespace+"/a"
			a, exists, err := x.GetByKey(key)
			if err != nil || !exists || a.(*corev1.ConfigMap).Name != "a" {
				t.Errorf("GetByKey has %v, %v, %v", a, exists, err)
			}
			for _, absent := range []string{namespace + "/c", "a", "", "a/b/c"} {
				if _, exists, err := x.GetByKey(absent); exists || err != nil {
					t.Errorf("GetByKey(%q) has %v, %v", absent, exists, err)
				}
			}
			if _, exists, err := x.Get(toolscache.DeletedFinalStateUnknown{Key: key}); !exists || err != nil {
				t.Errorf("Get of a key has %v, %v", exists, err)
			}
			if _, _, err := x.Get("no object"); err == nil {
				t.Error("Get of no object is no error")
			}
			if keys := x.ListKeys(); len(keys) != 2 || len(x.List()) != 2 {
				t.Errorf("there are %v", keys)
			}
			if keys, err := x.IndexKeys("v", "b"); err != nil || len(keys) != 1 || keys[0] != namespace+"/b" {
				t.Errorf("IndexKeys has %v, %v", keys, err)
			}
			if like, err := x.Index("v", a); err != nil || len(like) != 1 {
				t.Errorf("Index has %v, %v", like, err)
			}
			if all, err := x.ByIndex(toolscache.NamespaceIndex, namespace); err != nil || len(all) != 2 {
				t.Errorf("ByIndex has %v, %v", all, err)
			}
			if none, err := x.ByIndex(toolscache.NamespaceIndex, ""); err != nil || len(none) != 0 {
				t.Errorf("ByIndex of no namespace has %v, %v", none, err)
			}
			if values := x.ListIndexFuncValues("v"); len(values) != 2 {
				t.Errorf("the values of an index are %v", values)
			}
			if values := x.ListIndexFuncValues(toolscache.NamespaceIndex); len(values) != 1 || values[0] != namespace {
				t.Errorf("the namespaces are %v", values)
			}
			if _, err := x.ByIndex("unknown", ""); err == nil || err.Error() != "Index with name unknown does not exist" {
				t.Errorf("a missing index: %v", err)
			}
			if values := x.ListIndexFuncValues("unknown"); len(values) != 0 || len(x.GetIndexers()) != 2 {
				t.Errorf("values of no index: %v", values)
			}
			peer.Must(t, toolscache.ShutDownEventHandler(in, reg))
			stop()
			<-ended
			if !in.IsStopped() || len(x.List()) != 2 {
				t.Error("it has not stopped, or its store is empty")
			}
			if all, err := x.ByIndex("v", "a"); err != nil || len(all) != 1 {
				t.Errorf("an index of an informer that has stopped has %v, %v", all, err)
			}
			if in.AddIndexers(toolscache.Indexers{}) == nil {
				t.Error("indexers were added to an informer that has stopped")
			}
		})
	}
}

func TestInformerOfAnUnknownKind(t *testing.T) {
	t.Parallel()
	ours, err := controllerruntime.NewInformers(env.Config(t), runtime.NewScheme())
	peer.Must(t, err)
	for _, obj := range []runtime.Object{
		&corev1.ConfigMap{}, &unstructured.Unstructured{},
		&metav1.PartialObjectMetadata{},
	} {
		if _, err := ours.Informer(obj, 0); err == nil {
			t.Errorf("there is an informer of %T without a kind", obj)
		}
	}
}
