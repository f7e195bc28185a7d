package live

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// patience bounds how long a request of the subject waits for the follower, in case that a change never comes.
const patience = 5 * time.Second

// follower follows all objects of an API server. It is safe for concurrent use.
type follower struct {
	client dynamic.Interface
	// defined, if not nil, is called for each established definition while the lock is held. It must be set before follow
	// is called.
	defined func(crd *unstructured.Unstructured)

	mu      sync.Mutex
	objects map[types.UID]object
	seen    map[schema.GroupResource]uint64 // newest resource version
	last    time.Time                       // of a change
	changed chan struct{}                   // closed at the next change
	report  func(apiserver.Change)          // nil: no run yet
	err     error                           // following has failed
}

// object is an object with its kind.
type object struct {
	resource apiserver.Resource
	content  *unstructured.Unstructured
}

func newFollower(client dynamic.Interface) *follower {
	return &follower{
		client: client, objects: map[types.UID]object{}, seen: map[schema.GroupResource]uint64{}, last: time.Now(),
		changed: make(chan struct{}),
	}
}

// follow lists a resource, and follows it until ctx ends or it is not served any more. listed is called after the list.
// The API server ends the watches of a kind whose CustomResourceDefinition changes, and may require a new list.
func (f *follower) follow(ctx context.Context, res apiserver.Resource, listed func()) {
	err := f.list(ctx, res)
	listed()
	for err == nil && ctx.Err() == nil {
		if err = f.watch(ctx, res); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			err = f.list(ctx, res)
		}
	}
	if ctx.Err() == nil && !apierrors.IsNotFound(err) {
		f.fail(fmt.Errorf("cannot follow %s: %w", res.GVR().GroupResource(), err))
	}
}

// list takes the present objects of a resource. Those that are not among them any more have been deleted.
func (f *follower) list(ctx context.Context, res apiserver.Resource) error {
	all, err := f.client.Resource(res.GVR()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance(res, all.GetResourceVersion())
	present := map[types.UID]bool{}
	for i := range all.Items {
		u := &all.Items[i]
		present[u.GetUID()] = true
		if known, ok := f.objects[u.GetUID()]; !ok || known.content.GetResourceVersion() != u.GetResourceVersion() {
			f.change(res, watch.Added, u)
		}
	}
	for uid, o := range f.objects {
		if o.resource.GVR() == res.GVR() && !present[uid] {
			f.change(res, watch.Deleted, o.content)
		}
	}
	return nil
}

// watch follows a resource from what has been seen on, until the server ends the watch.
func (f *follower) watch(ctx context.Context, res apiserver.Resource) error {
	f.mu.Lock()
	version := strconv.FormatUint(f.seen[res.GVR().GroupResource()], 10)
	f.mu.Unlock()
	w, err := f.client.Resource(res.GVR()).Watch(ctx, metav1.ListOptions{
		ResourceVersion: version, AllowWatchBookmarks: true,
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if err := f.take(res, e); err != nil {
			return err
		}
	}
	return nil
}

// take takes one event of a watch.
func (f *follower) take(res apiserver.Resource, e watch.Event) error {
	u, ok := e.Object.(*unstructured.Unstructured)
	if e.Type == watch.Error || !ok {
		return fmt.Errorf("the watch failed: %w", apierrors.FromObject(e.Object))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Type != watch.Bookmark {
		f.change(res, e.Type, u)
	}
	f.advance(res, u.GetResourceVersion())
	return nil
}

// change keeps and reports a change. The caller holds the lock.
func (f *follower) change(res apiserver.Resource, event watch.EventType, u *unstructured.Unstructured) {
	if isAPIServer(res, u) {
		return
	}
	c := apiserver.Change{Resource: res, Old: f.objects[u.GetUID()].content, New: u}
	if event == watch.Deleted {
		if c.New = nil; c.Old == nil {
			return
		}
		delete(f.objects, u.GetUID())
	} else {
		f.objects[u.GetUID()] = object{res, u}
		if f.defined != nil && isEstablished(res, u) {
			f.defined(u)
		}
	}
	f.last = time.Now()
	if f.report != nil {
		f.report(c)
	}
}

// isEstablished reports whether an object is a definition that is established.
func isEstablished(res apiserver.Resource, u *unstructured.Unstructured) bool {
	status, _ := condition(u, "Established")
	return res.GVR() == definitions && status == "True" && u.GetDeletionTimestamp() == nil
}

// isAPIServer reports whether an object is the Service of the API server, which has another port in each run.
func isAPIServer(res apiserver.Resource, u *unstructured.Unstructured) bool {
	return res.GVR().GroupResource() == schema.GroupResource{Resource: "services"} &&
		u.GetNamespace() == metav1.NamespaceDefault && u.GetName() == "kubernetes"
}

// advance records a resource version, and wakes those that wait. The caller holds the lock.
func (f *follower) advance(res apiserver.Resource, version string) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return
	}
	of := res.GVR().GroupResource()
	f.seen[of] = max(f.seen[of], n)
	f.wake()
}

func (f *follower) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.wake()
}

// failure returns why objects are not followed any more, or nil.
func (f *follower) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// attach reports all present objects, and each change from now on.
func (f *follower) attach(report func(apiserver.Change)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.objects {
		report(apiserver.Change{Resource: o.resource, New: o.content})
	}
	f.report = report
}

// until waits until holds returns true, within patience. holds is called with the lock.
func (f *follower) until(ctx context.Context, holds func() bool) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		f.mu.Lock()
		ok, next, err := holds(), f.changed, f.err
		f.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-next:
		case <-limit.C:
			return fmt.Errorf("nothing came within %s", patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reached waits until a resource version has been seen. It does not wait for a resource that is not followed.
func (f *follower) reached(ctx context.Context, res schema.GroupResource, version string) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return
	}
	_ = f.until(ctx, func() bool {
		seen, followed := f.seen[res]
		return !followed || seen >= n
	})
}

// ended waits until an object is gone, or marked for deletion.
func (f *follower) ended(ctx context.Context, uid types.UID) {
	_ = f.until(ctx, func() bool {
		o, ok := f.objects[uid]
		return !ok || o.content.GetDeletionTimestamp() != nil
	})
}

// quiet waits until nothing has changed for d.
func (f *follower) quiet(ctx context.Context, d time.Duration) error {
	for {
		f.mu.Lock()
		left := d - time.Since(f.last)
		f.mu.Unlock()
		if left <= 0 {
			return nil
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
}

// has reports whether an object exists.
func (f *follower) has(resource, namespace, name string) bool {
	for _, o := range f.objects {
		if o.resource.Resource == resource && o.content.GetNamespace() == namespace && o.content.GetName() == name {
			return true
		}
	}
	return false
}
