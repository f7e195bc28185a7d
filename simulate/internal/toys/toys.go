// Package toys has small controllers on client-go's informers, each with a bug that package simulate has to find, and
// its twin without it. Their definition is testdata/widgets.yaml of simulate, where their tests run.
package toys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"

	"github.com/fairlead-io/fairlead/simulate"
)

var widgets = schema.GroupVersionResource{Group: "example.fairlead.io", Version: "v1", Resource: "widgets"}

const finalizer = "example.fairlead.io/toy"

// Toy is what a reconcile function works with. The listers read the caches of informers.
type Toy struct {
	Context    context.Context //nolint:containedctx // of the process
	client     kubernetes.Interface
	Widgets    dynamic.ResourceInterface
	configMaps listers.ConfigMapNamespaceLister
	Again      func(name string) // reconciles soon
}

// Widget is a widget as a reconcile function sees it.
type Widget struct{ *unstructured.Unstructured }

func (w Widget) size() int64 {
	n, _, _ := unstructured.NestedInt64(w.Object, "spec", "size")
	return n
}

// Status returns a field of the status, or "".
func (w Widget) Status(field string) string {
	s, _, _ := unstructured.NestedString(w.Object, "status", field)
	return s
}

// Controller returns a subject that calls reconcile for each widget that it knows from its cache, and again when one of
// the widget's ConfigMaps changes, or after a failure.
func Controller(reconcile func(*Toy, Widget) error) simulate.Subject {
	return Subject(func(ctx context.Context, cfg *rest.Config) error { return runToy(ctx, cfg, true, reconcile) })
}

// Subject returns a subject with the kind Widget.
func Subject(start func(context.Context, *rest.Config) error) simulate.Subject {
	return simulate.Subject{Start: start, CRDs: "testdata/widgets.yaml"}
}

// runToy runs such a controller. Without tombstones it expects the object itself when it is told of a deletion.
func runToy(ctx context.Context, cfg *rest.Config, tombstones bool, reconcile func(*Toy, Widget) error) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	typed, untyped := informers.NewSharedInformerFactory(client, 0),
		dynamicinformer.NewDynamicSharedInformerFactory(dyn, 0)
	handler := func(name func(metav1.Object) string) cache.ResourceEventHandler {
		add := func(o any) {
			if d, ok := o.(cache.DeletedFinalStateUnknown); ok && tombstones {
				o = d.Obj
			}
			if n := name(o.(metav1.Object)); n != "" {
				queue.Add(n)
			}
		}
		return cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }, DeleteFunc: add}
	}
	w := untyped.ForResource(widgets)
	if _, err := w.Informer().AddEventHandler(handler(metav1.Object.GetName)); err != nil {
		return err
	}
	cm := typed.Core().V1().ConfigMaps()
	label := func(o metav1.Object) string { return o.GetLabels()["widget"] }
	if _, err := cm.Informer().AddEventHandler(handler(label)); err != nil {
		return err
	}
	t := &Toy{
		Again: func(name string) { queue.AddAfter(name, 100*time.Millisecond) }, Context: ctx, client: client,
		Widgets: dyn.Resource(widgets).Namespace("default"), configMaps: cm.Lister().ConfigMaps("default"),
	}
	typed.Start(ctx.Done())
	untyped.Start(ctx.Done())
	defer typed.Shutdown()
	defer untyped.Shutdown()
	typed.WaitForCacheSync(ctx.Done())
	untyped.WaitForCacheSync(ctx.Done())
	context.AfterFunc(ctx, queue.ShutDown)
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return nil
		}
		obj, err := w.Lister().ByNamespace("default").Get(name)
		if err == nil {
			err = reconcile(t, Widget{obj.(*unstructured.Unstructured).DeepCopy()})
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

// SetStatus writes fields of the status. With version set it fails if the widget has changed since it was read.
func (t *Toy) SetStatus(w Widget, fields map[string]any, version bool) error {
	changed := false
	for k, v := range fields {
		if w.Status(k) != v {
			changed = true
		}
	}
	if !changed {
		return nil
	}
	body := map[string]any{"status": fields}
	if version {
		body["metadata"] = map[string]any{"resourceVersion": w.GetResourceVersion()}
	}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = t.Widgets.Patch(t.Context, w.GetName(), types.MergePatchType, b, metav1.PatchOptions{}, "status")
	return err
}

func (t *Toy) setFinalizers(w Widget, list ...string) error {
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers": list, "resourceVersion": w.GetResourceVersion(),
	}})
	if err != nil {
		return err
	}
	_, err = t.Widgets.Patch(t.Context, w.GetName(), types.MergePatchType, b, metav1.PatchOptions{})
	return err
}

func configMap(w Widget, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"widget": w.GetName()}},
		Data:       map[string]string{"size": fmt.Sprint(w.size())},
	}
}

func (t *Toy) create(cm *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	return t.client.CoreV1().ConfigMaps("default").Create(t.Context, cm, metav1.CreateOptions{})
}

func (t *Toy) remove(name string) error {
	return t.client.CoreV1().ConfigMaps("default").Delete(t.Context, name, metav1.DeleteOptions{})
}

func ignore(err error, is func(error) bool) error {
	if is(err) {
		return nil
	}
	return err
}

// trustsDelete panics if it learns from a list that a widget is gone. Its twin takes the last known state.
func trustsDelete(fixed bool) simulate.Subject {
	return Subject(func(ctx context.Context, cfg *rest.Config) error {
		return runToy(ctx, cfg, fixed, func(t *Toy, w Widget) error {
			return t.SetStatus(w, map[string]any{"phase": "Ready"}, true)
		})
	})
}

// leaks deletes at the end only what it has recorded in the status. Its twin deletes by label.
func leaks(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error {
		if w.GetDeletionTimestamp() != nil {
			names := []string{w.Status("child")}
			if fixed {
				list, err := t.client.CoreV1().ConfigMaps("default").List(t.Context,
					metav1.ListOptions{LabelSelector: "widget=" + w.GetName()})
				if err != nil {
					return err
				}
				names = nil
				for _, cm := range list.Items {
					names = append(names, cm.Name)
				}
			}
			for _, name := range names {
				if name == "" {
					continue
				}
				if err := ignore(t.remove(name), apierrors.IsNotFound); err != nil {
					return err
				}
			}
			return t.setFinalizers(w)
		}
		if len(w.GetFinalizers()) == 0 {
			return t.setFinalizers(w, finalizer)
		}
		if w.Status("child") != "" {
			return nil
		}
		if fixed {
			list, err := t.client.CoreV1().ConfigMaps("default").List(t.Context,
				metav1.ListOptions{LabelSelector: "widget=" + w.GetName()})
			if err != nil {
				return err
			}
			if len(list.Items) > 0 {
				return t.SetStatus(w, map[string]any{"child": list.Items[0].Name, "phase": "Ready"}, true)
			}
		}
		cm := configMap(w, "")
		cm.GenerateName = w.GetName() + "-"
		made, err := t.create(cm)
		if err != nil {
			return err
		}
		return t.SetStatus(w, map[string]any{"child": made.Name, "phase": "Ready"}, true)
	})
}

// lostUpdate gives each widget the next number of a shared ConfigMap, which it reads from its cache, and writes the
// next number without a version. Its twin sends the version.
func lostUpdate(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error {
		if w.Status("phase") == "Ready" {
			return nil
		}
		pool, err := t.configMaps.Get("pool")
		if apierrors.IsNotFound(err) {
			_, err = t.create(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "pool", Labels: map[string]string{"widget": w.GetName()}},
				Data:       map[string]string{"next": "0"},
			})
			if err = ignore(err, apierrors.IsAlreadyExists); err == nil {
				err = errors.New("once more, with the pool")
			}
		}
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(pool.Data["next"])
		if err != nil {
			return err
		}
		if holder := pool.Data[w.GetName()]; holder == "" {
			meta := map[string]any{}
			if fixed {
				meta["resourceVersion"] = pool.ResourceVersion
			}
			b, err := json.Marshal(map[string]any{"metadata": meta, "data": map[string]string{
				"next": fmt.Sprint(number + 1), w.GetName(): fmt.Sprint(number),
			}})
			if err != nil {
				return err
			}
			_, err = t.client.CoreV1().ConfigMaps("default").Patch(t.Context, "pool", types.MergePatchType, b,
				metav1.PatchOptions{})
			if err != nil {
				return err
			}
		}
		return t.SetStatus(w, map[string]any{"phase": "Ready"}, true)
	})
}

// releasedEarly removes its finalizer even if the deletion of the ConfigMap has failed. Its twin tries again.
func releasedEarly(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error {
		if w.GetDeletionTimestamp() != nil {
			if err := ignore(t.remove(w.GetName()), apierrors.IsNotFound); err != nil && fixed {
				return err
			}
			return t.setFinalizers(w)
		}
		if len(w.GetFinalizers()) == 0 {
			return t.setFinalizers(w, finalizer)
		}
		if _, err := t.create(configMap(w, w.GetName())); ignore(err, apierrors.IsAlreadyExists) != nil {
			return err
		}
		return t.SetStatus(w, map[string]any{"phase": "Ready"}, true)
	})
}

// hotLoop compares its ConfigMap with one that lacks what the server sets, and updates it for ever. Its twin compares
// the data.
func hotLoop(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error {
		want := configMap(w, w.GetName())
		have, err := t.configMaps.Get(w.GetName())
		if apierrors.IsNotFound(err) {
			_, err = t.create(want)
			if err = ignore(err, apierrors.IsAlreadyExists); err != nil {
				return err
			}
			return t.SetStatus(w, map[string]any{"phase": "Ready"}, true)
		}
		if err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(have.ObjectMeta, want.ObjectMeta) || fixed && have.Data["size"] == want.Data["size"] {
			return t.SetStatus(w, map[string]any{"phase": "Ready"}, true)
		}
		if _, err := t.client.CoreV1().ConfigMaps("default").Update(t.Context, want, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if err := t.SetStatus(w, map[string]any{"phase": "Ready"}, true); err != nil {
			return err
		}
		t.Again(w.GetName()) // to see whether it is equal now
		return nil
	})
}

// Vendor is the host of an outside service.
const Vendor = "vendor.example"

// VendorService is an outside service that creates a disk for each POST.
func VendorService() http.Handler {
	disks := map[string]string{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /disks", func(rw http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if key == "" || disks[key] == "" {
			disks[key] = fmt.Sprintf("disk-%d", len(disks)+1)
		}
		rw.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(rw, disks[key]) // the answer may be lost
	})
	return mux
}

// doubledCall creates a disk before it records that it has. Its twin sends an idempotency key.
func doubledCall(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error {
		if w.Status("phase") == "Ready" {
			return nil
		}
		url := "http://" + Vendor + "/disks"
		r, err := http.NewRequestWithContext(t.Context, http.MethodPost, url, strings.NewReader("size=1"))
		if err != nil {
			return err
		}
		if fixed {
			r.Header.Set("Idempotency-Key", string(w.GetUID()))
		}
		resp, err := simulate.Client(t.Context).Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			return fmt.Errorf("the vendor answers %d", resp.StatusCode)
		}
		return t.SetStatus(w, map[string]any{"phase": "Ready"}, true)
	})
}

// twoLeaders creates a ConfigMap with a generated name if the server has none. Only a leader does so, so that there is
// one ConfigMap if no write of an earlier leader is under way. Its twin has a fixed name. Its lock is a ConfigMap.
func twoLeaders(fixed bool) simulate.Subject {
	lock := func(c kubernetes.Interface, identity string) resourcelock.Interface {
		return &configMapLock{client: c.CoreV1().ConfigMaps("default"), name: "toy", identity: identity}
	}
	return elected(lock, fixed, true)
}

// worksOn works on when it has lost its lock, beside the next leader. Its twin ends. Its lock is a Lease.
func worksOn(fixed bool) simulate.Subject {
	lock := func(c kubernetes.Interface, identity string) resourcelock.Interface {
		return &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "toy"}, Client: c.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		}
	}
	return elected(lock, false, fixed)
}

// elected is a subject with leader election. The names of its ConfigMaps are fixed or generated, and it may end when it
// has lost its lock.
func elected(
	lock func(c kubernetes.Interface, identity string) resourcelock.Interface, fixed, ends bool,
) simulate.Subject {
	return Subject(func(ctx context.Context, cfg *rest.Config) error {
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		identity := fmt.Sprint(time.Now().UnixNano(), "-", &ctx)
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		ended := make(chan error, 1)
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock:          lock(client, identity),
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(leading context.Context) {
					if !ends {
						leading = ctx
					}
					ended <- runToy(leading, cfg, true, func(t *Toy, w Widget) error {
						list, err := t.client.CoreV1().ConfigMaps("default").List(t.Context,
							metav1.ListOptions{LabelSelector: "widget=" + w.GetName()})
						if err == nil && len(list.Items) == 0 {
							cm := configMap(w, w.GetName())
							if !fixed {
								cm.Name, cm.GenerateName = "", w.GetName()+"-"
							}
							_, err = t.create(cm)
							err = ignore(err, apierrors.IsAlreadyExists)
						}
						if err != nil {
							return err
						}
						return t.SetStatus(w, map[string]any{"phase": "Ready"}, true)
					})
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return err
		}
		elector.Run(ctx)
		if ends {
			cancel(nil)
		}
		select {
		case err := <-ended:
			return errors.Join(err, errors.New("the lock is lost"))
		case <-ctx.Done():
			return nil
		}
	})
}
