package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client/internal/content"
	"github.com/fairlead-io/fairlead/client/internal/pending"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/internal/tree"
)

// Modify changes the object that obj names. It applies fn to the freshest known state and sends the difference with the
// resourceVersion of that state. It therefore never overwrites a change that fn has not seen. After a conflict it
// applies fn to the new state, up to ten attempts in total. The final error matches ErrTooManyConflicts and the last
// conflict. fn may therefore run several times, each time on a fresh copy. An error of fn ends the call. If fn changes
// nothing, Modify sends no write. If the kind is not watched, it then reads the object from the server, because obj may
// hold values that were never written.
//
// Modify does not make a change twice. If the answer to a write is lost and the object has another version by then,
// Modify looks for the change. The change counts as made if it is present and belongs to the client's FieldOwner. The
// FieldOwner must therefore be unique to the program. If the change is not present, a later write may have overwritten
// it. Modify then tests whether fn is idempotent on its own result. If it is, Modify applies fn again. Otherwise, as
// for a counter or an append to a list, the error matches call.ErrOutcomeUnknown.
//
// A schema may require fields that the Go type encodes although they are zero (fields without omitempty). If the
// difference adds an object that the server lacks, such as the first status, Modify sends all such fields of it. If the
// server refuses a status because a required field is missing, Modify retries once. The retry includes all fields that
// the server lacks in the parts that fn changes. Modify sends no other fields, and setting a zero field to zero is not
// a change.
//
// Afterwards obj holds the server's answer, so the caller must own it. Modify refuses the current shared object of the
// cache, as returned by [Get], [List] or an event, with ErrShared. If obj has a uid, Modify changes only that
// incarnation, and otherwise returns ErrReplaced. Fields that the cache drops (cache.Content) are invisible to fn and
// remain on the server. fn receives the object without the cache's transform. If the status is a subresource, Modify
// cannot write it. If fn changes it, Modify writes the other fields and returns an error that matches ErrStatusApart.
func Modify[T any, PT ObjectOf[T]](
	ctx context.Context, c *Client, obj PT, fn func(PT) error, opts ...WriteOption,
) error {
	return modify(ctx, c, "", obj, fn, opts)
}

// ModifyStatus is Modify for the status. If fn changes any other field, ModifyStatus sends nothing and the error
// matches ErrStatusApart.
func ModifyStatus[T any, PT ObjectOf[T]](
	ctx context.Context, c *Client, obj PT, fn func(PT) error, opts ...WriteOption,
) error {
	return modify(ctx, c, "status", obj, fn, opts)
}

func modify[T any, PT ObjectOf[T]](
	ctx context.Context, c *Client, subresource string, obj PT, fn func(PT) error, opts []WriteOption,
) error {
	m, err := newModification(ctx, c.writer(), subresource, obj, opts)
	if err != nil {
		return err
	}
	if fn == nil {
		return m.w.fail(fmt.Errorf("the function: %w", ErrNil))
	}
	return m.run(ctx, func(o Object) error { return fn(o.(PT)) })
}

// modification is a Modify in progress.
type modification struct {
	w    *writing
	obj  Object
	uid  types.UID
	live bool // read from the server, because the cache is behind
	own  bool // the base is the caller's object, which may differ from the server's
	base content.Original
	// The patch that the server refused because a required field is missing, and the error. Set once the retry sends
	// the missing fields.
	lacking struct {
		patch []byte
		err   error
	}
	last error
}

func newModification(
	ctx context.Context, wr writer, subresource string, obj Object, opts []WriteOption,
) (*modification, error) {
	w, err := wr.begin(ctx, call.VerbPatch, subresource, obj, opts)
	if err != nil {
		return nil, err
	}
	w.verb = "modify"
	w.req.ConflictsExpected = true
	return &modification{w: w, obj: obj, uid: obj.GetUID(), live: w.o.Live}, nil
}

func (m *modification) run(ctx context.Context, fn func(Object) error) error {
	delay := backoff.Policy{Base: modifyBase, Cap: modifyCap, Factor: 2}
	for n := 0; n < modifyTries; n++ {
		base, err := m.freshest(ctx, n)
		if err != nil {
			return err
		}
		err = m.try(ctx, base, fn)
		inDoubt := errors.Is(err, call.ErrOutcomeUnknown)
		if err == nil || !apierrors.IsConflict(err) || inDoubt && !m.repeatable(base, fn) {
			return err
		}
		m.last = err
		if n+1 < modifyTries {
			if err := m.pause(ctx, base.GetResourceVersion(), delay.Delay(n, rand.Float64)); err != nil {
				return err
			}
		}
	}
	return m.w.fail(fmt.Errorf("%w: gave up after %d: %w", ErrTooManyConflicts, modifyTries, m.last))
}

// freshest returns a copy of the freshest known state. The error matches ErrReplaced if that has another uid than
// m.uid.
func (m *modification) freshest(ctx context.Context, tries int) (Object, error) {
	base, err := m.read(ctx, tries)
	if err == nil && m.uid != "" && base.GetUID() != m.uid {
		err = m.w.fail(fmt.Errorf("%w: it has uid %s now", ErrReplaced, base.GetUID()))
	}
	return base, err
}

// read returns the cached object, or else the server's answer. In the first attempt it returns the caller's object if
// that is whole and the kind is not watched. Only the server decides that the object is absent or was replaced, because
// the cache may be behind.
func (m *modification) read(ctx context.Context, tries int) (Object, error) {
	m.own, m.base = false, content.Original{}
	base := m.obj.DeepCopyObject().(Object)
	if !m.live {
		// If versions cannot be ordered, a conflict detects an outdated cache.
		r := m.w.record(isMetadata(m.obj))
		if r != nil && (m.uid == "" || r.UID() == m.uid) && (m.w.unordered() || m.w.trusts(r)) {
			m.base = originalOf(r)
			return base, fillKept(m.w.k, r, base)
		}
		if tries == 0 && base.GetResourceVersion() != "" && base.GetUID() != "" && m.w.stores.complete(m.w.k) == nil {
			m.own = true
			return base, nil
		}
	}
	a, err := m.w.server.get(ctx, m.w.k, m.w.key, accept(base, false))
	if err != nil {
		return base, err
	}
	m.base.JSON = func() (map[string]any, error) { return content.Decode(a.Raw) }
	return base, into(m.w.k, a, base)
}

// try applies fn to a copy of base and sends the difference.
func (m *modification) try(ctx context.Context, base Object, fn func(Object) error) error {
	changed := base.DeepCopyObject().(Object)
	if err := guard(fn, changed); err != nil {
		return m.w.fail(err)
	}
	before, err := content.Of(base)
	if err != nil {
		return m.w.fail(err)
	}
	after, err := content.Of(changed)
	if err != nil {
		return m.w.fail(err)
	}
	d := tree.Difference(before, after)
	content.DropServerFields(d)
	if m.w.req.Subresource != "" {
		for field := range d {
			if field != m.w.req.Subresource {
				return m.w.fail(fmt.Errorf("%w: the function changes %s; use Modify for it", ErrStatusApart, field))
			}
		}
	}
	if len(d) == 0 && !m.w.o.Always {
		// The caller may have changed obj, or obj may be the answer to a dry run. Only the server knows that there is no
		// change.
		if m.own {
			return m.tryLive(ctx, fn)
		}
		return assign(m.obj, base)
	}
	if known, err := m.base.Complete(d, before, after, m.lacking.err != nil); err != nil {
		return m.w.fail(err)
	} else if !known {
		return m.tryLive(ctx, fn)
	}
	content.Member(d, "metadata")["resourceVersion"] = base.GetResourceVersion()
	data, err := json.Marshal(d)
	if err != nil {
		return m.w.fail(err)
	}
	if m.lacking.err != nil && bytes.Equal(data, m.lacking.patch) {
		return m.lacking.err
	}
	w := *m.w
	w.version, w.sent = base.GetResourceVersion(), data
	w.req.PatchType, w.req.Body = types.MergePatchType, data
	err = w.send(ctx)
	if lacksRequired(err) && m.lacking.err == nil {
		m.lacking.patch, m.lacking.err = data, err
		return m.try(ctx, base, fn)
	}
	if err != nil {
		return err
	}
	return m.checkStatus(before, d)
}

// tryLive is try with the current state of the server.
func (m *modification) tryLive(ctx context.Context, fn func(Object) error) error {
	m.live = true
	base, err := m.freshest(ctx, 0)
	if err != nil {
		return err
	}
	return m.try(ctx, base, fn)
}

// checkStatus returns an error if the server has dropped a change of the status, as it does if the status is a
// subresource.
// The write was bound to one version, so no other client can have reverted it.
func (m *modification) checkStatus(before, patch map[string]any) error {
	if _, changed := patch["status"]; !changed || m.w.req.Subresource != "" || m.w.o.DryRun {
		return nil
	}
	answer, err := content.Of(m.obj)
	if err != nil {
		return m.w.fail(err)
	}
	if tree.Same(answer["status"], before["status"]) {
		return m.w.fail(fmt.Errorf("%w: the server has dropped the change of the status; use ModifyStatus for it",
			ErrStatusApart))
	}
	return nil
}

// repeatable reports whether fn is idempotent: whether a second application to the result of the first changes nothing.
// Only then may fn run again on an object that may already contain its change.
func (m *modification) repeatable(base Object, fn func(Object) error) bool {
	once := base.DeepCopyObject().(Object)
	if guard(fn, once) != nil {
		return false
	}
	twice := once.DeepCopyObject().(Object)
	if guard(fn, twice) != nil {
		return false
	}
	before, err := content.Of(once)
	if err != nil {
		return false
	}
	after, err := content.Of(twice)
	return err == nil && len(tree.Difference(before, after)) == 0
}

// guard calls fn and converts its panic into an error.
func guard(fn func(Object) error, obj Object) (err error) {
	if p := protect.Call(func() { err = fn(obj) }); p != nil {
		return fmt.Errorf("panic in the function that modifies the object: %w", p)
	}
	return err
}

// pause waits after a conflict until the cache, or else the server, can return a newer state than the stale one.
func (m *modification) pause(ctx context.Context, stale string, delay time.Duration) error {
	st := m.w.stores.complete(m.w.k)
	if st != nil && pending.Unordered(st) {
		return m.poll(ctx, st, stale)
	}
	if err := backoff.Pause(ctx, delay); err != nil {
		return errors.Join(m.w.fail(err), m.last)
	}
	m.live = true
	if st != nil && !m.w.o.Live {
		if r, ok := st.Get(m.w.key); ok {
			order, ok := resourceversion.Compare(r.Version(), stale)
			m.live = !ok || order <= 0
		}
	}
	return nil
}

// poll waits until the version in the cache has changed. With unordered versions, a state from the server cannot be
// compared with the cache, which might be ahead or behind.
func (m *modification) poll(ctx context.Context, st *cache.Store, stale string) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	for {
		r, ok := st.Get(m.w.key)
		if ok && r.Version() != stale {
			return nil
		}
		if err := backoff.Pause(ctx, pollInterval); err != nil {
			return m.w.fail(fmt.Errorf("%w: %w", ErrCacheBehind, errors.Join(err, m.last)))
		}
		if !ok { // absent from the cache; the next attempt asks the server
			return nil
		}
	}
}

// assign copies src to dst, which has the same type.
func assign(dst, src Object) error {
	raw, err := json.Marshal(src)
	if err != nil {
		return err
	}
	clearObject(dst)
	return json.Unmarshal(raw, dst)
}

// originalOf returns the server's object according to a record.
func originalOf(r *cache.Record) content.Original {
	return content.Original{JSON: func() (map[string]any, error) {
		raw, err := r.AppendJSON(nil)
		if err != nil {
			return nil, err
		}
		return content.Decode(raw)
	}, Drop: r.Dropped()}
}

// lacksRequired reports whether the server refused a write because a required field is missing.
func lacksRequired(err error) bool {
	var refused apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &refused) || refused.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(refused.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeFieldValueRequired
	})
}
