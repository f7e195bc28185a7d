package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/condition"
)

// When returns a wait until cond returns true for an object. cond receives nil while the object does not exist. The
// object is READ-ONLY. An error of cond ends the wait.
//
//	running := func(p *corev1.Pod) (bool, error) { return p != nil && p.Status.Phase == corev1.PodRunning, nil }
//	return f.Await(client.When(c, key, running), flow.Timeout(5*time.Minute))
//
// The wait evaluates cond when it begins and on each event of the object, if its kind is watched. It evaluates cond on
// the server's answer every Options.Backstop. It also asks the server before it ends for an absent object that the
// cache has never shown. If the server's answer ends the wait, the wait stores that answer in the cache, so the next
// step reads nothing older.
func When[T any, PT ObjectOf[T]](c *Client, key Key, cond func(*T) (bool, error)) flow.Backstopped {
	return &objectWait[T, PT]{host: c.waitHost(), key: key, cond: cond}
}

// Condition returns a wait until a condition in status.conditions of an object is True, as in Condition[corev1.Pod](c,
// key, "Ready").
func Condition[T any, PT ObjectOf[T]](c *Client, key Key, name string) flow.Backstopped {
	return &objectWait[T, PT]{host: c.waitHost(), key: key, condition: name, cond: func(obj *T) (bool, error) {
		if obj == nil {
			return false, nil
		}
		all, err := condition.Of(obj)
		if err != nil {
			return false, err
		}
		for _, have := range all {
			if have.Type == name {
				return have.Status == metav1.ConditionTrue, nil
			}
		}
		return false, nil
	}}
}

// Gone returns a wait until an object does not exist.
func Gone[T any, PT ObjectOf[T]](c *Client, key Key) flow.Backstopped {
	return &objectWait[T, PT]{
		host: c.waitHost(), key: key, gone: true,
		cond: func(obj *T) (bool, error) { return obj == nil, nil },
	}
}

// waitHost is what a wait needs of a client.
type waitHost struct {
	reader   reader
	waits    *waits
	backstop time.Duration // interval of requests to the server
}

type objectWait[T any, PT ObjectOf[T]] struct {
	host  waitHost
	key   Key
	cond  func(*T) (bool, error)
	there atomic.Bool // the cache has shown the object, so its absence is not due to a late cache

	condition string            // name of the condition; empty for other waits
	gone      bool              // the wait is for deletion
	last      atomic.Pointer[T] // the server's last answer, if the kind is not watched
}

// Backstop implements flow.Backstopped.
func (w *objectWait[T, PT]) Backstop() time.Duration {
	return w.host.backstop // zero without a client; Check returns the error then
}

// Watch implements flow.Wait.
func (w *objectWait[T, PT]) Watch(waker flow.Waker) (stop func()) {
	k, err := kindFor[T, PT](w.host.reader.kinds)
	if err != nil {
		return nil // Check returns the error
	}
	st := w.store(k)
	if st == nil {
		return nil // only the backstop evaluates the condition
	}
	return w.host.waits.add(st, w.key, waker)
}

// Check implements flow.Wait.
func (w *objectWait[T, PT]) Check(ctx context.Context, live bool) (bool, error) {
	if w.cond == nil {
		return false, fmt.Errorf("cannot wait for %s: the function: %w", w.key, ErrNil)
	}
	k, err := kindFor[T, PT](w.host.reader.kinds)
	if err != nil {
		return false, err
	}
	if !live {
		obj, err := getTyped[T, PT](ctx, w.host.reader, w.key)
		w.there.CompareAndSwap(false, err == nil)
		ok, judged := w.judge(obj, err)
		if !ok && w.store(k) == nil {
			w.last.Store(obj)
		}
		if !ok || err == nil || w.there.Load() || w.store(k) == nil {
			return ok, judged
		}
		// The object is absent from the cache, and that would end the wait. The cache may be behind its creation, so ask
		// the server.
	}
	a, err := w.host.reader.server.get(ctx, k, w.key, call.JSON)
	if err != nil {
		w.last.Store(nil)
		return w.judge(nil, err)
	}
	obj := PT(new(T))
	if err := into(k, a, obj); err != nil {
		return false, err
	}
	ok, err := w.judge(obj, nil)
	if !ok {
		if w.store(k) == nil {
			w.last.Store((*T)(obj))
		}
		return false, err
	}
	return ok, errors.Join(err, w.host.reader.stores.put(k, a.Raw))
}

// store returns the store that shows the object; nil if the kind is not watched.
func (w *objectWait[T, PT]) store(k *kind) *cache.Store {
	return w.host.reader.stores.covering(k, w.key.Namespace)
}

func (w *objectWait[T, PT]) judge(obj *T, err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return w.cond(nil)
	}
	if err != nil {
		return false, err
	}
	return w.cond(obj)
}

// waitHost returns the parts that a wait needs. For a client that New has not made, its reads return ErrNotMade.
func (c *Client) waitHost() waitHost {
	if !c.made() {
		return waitHost{}
	}
	return waitHost{reader: c.reader(), waits: &c.waits, backstop: c.backstop}
}
