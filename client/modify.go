package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/internal/tree"
)

// Modify changes the object that obj names: fn is applied to the freshest known state of it, and the difference is sent
// with the resourceVersion of that state, so that nothing that fn has not seen is overwritten. After a conflict fn is
// applied again to what is there then, ten times at most; the final error matches
// ErrTooManyConflicts and the last conflict. fn may therefore run several times, each time on a fresh copy; its error
// ends the call. Nothing is sent when fn changes nothing; of a kind that is not watched the object is read then, since
// obj itself may say what nobody has written.
//
// A change is not made twice. If the answer to a write is lost, and the object has another version by then, it is
// looked whether the change is there and was made by the client's FieldOwner, which therefore has to be its own. If it
// is not, it may have been overwritten since: fn is applied again if it changes nothing about its own result, which is
// tried, as fn that sets something does; one that counts up or adds to a list ends the call with an error that matches
// call.ErrOutcomeUnknown.
//
// A schema may require what the Go type encodes although it is zero (fields that are not omitempty). An object in the
// difference that the server lacks, such as the whole status at first, is sent with all of that. If the server refuses a
// difference of a status since something required lacks in it, it is sent once more with all that the server lacks in the
// parts that fn changes. Nothing else is sent that fn has not changed, and to set what is zero already changes nothing.
//
// Afterwards obj is what the server answered: it must be the caller's own, not one that [Get], [List] or an event hands
// out, which is refused with ErrShared as long as it is the present one. If obj has a uid, only that incarnation is
// changed: else ErrReplaced. What the cache does not keep (cache.Content) is neither seen nor lost, and what a
// transform changes in it fn is given as the server has it. If fn changes the status, too, and the server does not take
// that because it is a subresource, the error matches ErrStatusApart; the rest is written then.
func Modify[T any, PT ObjectOf[T]](
	ctx context.Context, c *Client, obj PT, fn func(PT) error, opts ...WriteOption,
) error {
	return modify(ctx, c, "", obj, fn, opts)
}

// ModifyStatus is Modify for the status. If fn changes anything else, nothing is sent, and the error matches
// ErrStatusApart.
func ModifyStatus[T any, PT ObjectOf[T]](
	ctx context.Context, c *Client, obj PT, fn func(PT) error, opts ...WriteOption,
) error {
	return modify(ctx, c, "status", obj, fn, opts)
}

func modify[T any, PT ObjectOf[T]](
	ctx context.Context, c *Client, subresource string, obj PT, fn func(PT) error, opts []WriteOption,
) error {
	m, err := c.modification(ctx, subresource, obj, opts)
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
	live bool // the cache is behind: read from the server
	own  bool // the base is the caller's object, of which the server may know nothing
	base original
	// what the server has refused since something required lacks in it: it is completed
	lacking struct {
		patch []byte
		err   error
	}
	last error
}

func (c *Client) modification(
	ctx context.Context, subresource string, obj Object, opts []WriteOption,
) (*modification, error) {
	w, err := c.begin(ctx, call.VerbPatch, subresource, obj, opts)
	if err != nil {
		return nil, err
	}
	w.verb = "modify"
	w.req.ConflictsExpected = true
	return &modification{w: w, obj: obj, uid: obj.GetUID(), live: w.o.live}, nil
}

func (m *modification) run(ctx context.Context, fn func(Object) error) error {
	delay := backoff.Policy{Base: modifyBase, Cap: modifyCap, Factor: 2}
	for n := 0; n < modifyTries; n++ {
		base, err := m.freshest(ctx, n)
		if err != nil {
			return err
		}
		err = m.try(ctx, base, fn)
		if err == nil || !apierrors.IsConflict(err) || errors.Is(err, call.ErrOutcomeUnknown) && !m.repeatable(base, fn) {
			return err
		}
		m.last = err
		if n+1 < modifyTries {
			if err := m.settle(ctx, base.GetResourceVersion(), delay.Delay(n, rand.Float64)); err != nil {
				return err
			}
		}
	}
	return m.w.fail(fmt.Errorf("%w: gave up after %d: %w", ErrTooManyConflicts, modifyTries, m.last))
}

// freshest returns a copy of the freshest known state of the incarnation that is meant.
func (m *modification) freshest(ctx context.Context, tries int) (Object, error) {
	base, err := m.known(ctx, tries)
	if err == nil && m.uid != "" && base.GetUID() != m.uid {
		err = m.w.fail(fmt.Errorf("%w: it has uid %s now", ErrReplaced, base.GetUID()))
	}
	return base, err
}

// known is what the cache shows, or the server's answer; at first also what the caller has, if that is a whole object
// and nothing better is known. That the object is not there, or is another one, only the server can say: the cache may
// not know yet of the one that is meant.
func (m *modification) known(ctx context.Context, tries int) (Object, error) {
	m.own, m.base = false, original{}
	base := m.obj.DeepCopyObject().(Object)
	if !m.live {
		// With versions that cannot be ordered the lock finds out whether the cache is behind.
		r := m.w.cached(isMetadata(m.obj))
		if r != nil && (m.uid == "" || r.UID() == m.uid) && (m.w.unordered() || m.w.believes(r)) {
			m.base = originalOf(r)
			return base, fillKept(m.w.k, r, base)
		}
		if tries == 0 && base.GetResourceVersion() != "" && base.GetUID() != "" && m.w.c.watched(m.w.k) == nil {
			m.own = true
			return base, nil
		}
	}
	a, err := m.w.c.fetch(ctx, m.w.k, m.w.key, accept(base, false))
	if err != nil {
		return base, err
	}
	m.base.json = func() (map[string]any, error) { return contentOf(a.Raw) }
	return base, into(m.w.k, a, base)
}

// try applies fn to a copy of base and sends the difference.
func (m *modification) try(ctx context.Context, base Object, fn func(Object) error) error {
	changed := base.DeepCopyObject().(Object)
	if err := guard(fn, changed); err != nil {
		return m.w.fail(err)
	}
	before, err := content(base)
	if err != nil {
		return m.w.fail(err)
	}
	after, err := content(changed)
	if err != nil {
		return m.w.fail(err)
	}
	d := tree.Difference(before, after)
	dropServerFields(d)
	if m.w.sub != "" {
		for field := range d {
			if field != m.w.sub {
				return m.w.fail(fmt.Errorf("%w: the function changes %s; use Modify for it", ErrStatusApart, field))
			}
		}
	}
	if len(d) == 0 && !m.w.o.always {
		// which may have been changed by the caller, or be the answer to a dry run: only the server knows that nothing is to
		// do
		if m.own {
			return m.tryLive(ctx, fn)
		}
		return assign(m.obj, base)
	}
	if known, err := m.base.whole(d, before, after, m.lacking.err != nil); err != nil {
		return m.w.fail(err)
	} else if !known {
		return m.tryLive(ctx, fn)
	}
	sub(d, "metadata")["resourceVersion"] = base.GetResourceVersion()
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
	return m.taken(before, d)
}

// tryLive is try with what the server has now.
func (m *modification) tryLive(ctx context.Context, fn func(Object) error) error {
	m.live = true
	base, err := m.freshest(ctx, 0)
	if err != nil {
		return err
	}
	return m.try(ctx, base, fn)
}

// taken checks that the server has not dropped a change of the status, as it does where that is a subresource. The
// write was bound to one version, so nobody else can have changed it back.
func (m *modification) taken(before, patch map[string]any) error {
	if _, changed := patch["status"]; !changed || m.w.sub != "" || m.w.o.dryRun {
		return nil
	}
	answer, err := content(m.obj)
	if err != nil {
		return m.w.fail(err)
	}
	if tree.Same(answer["status"], before["status"]) {
		return m.w.fail(fmt.Errorf("%w: the server has dropped the change of the status; use ModifyStatus for it",
			ErrStatusApart))
	}
	return nil
}

// repeatable says whether fn may be applied to an object once more that it has perhaps been applied to already: whether
// it changes nothing about its own result.
func (m *modification) repeatable(base Object, fn func(Object) error) bool {
	once := base.DeepCopyObject().(Object)
	if guard(fn, once) != nil {
		return false
	}
	twice := once.DeepCopyObject().(Object)
	if guard(fn, twice) != nil {
		return false
	}
	before, err := content(once)
	if err != nil {
		return false
	}
	after, err := content(twice)
	return err == nil && len(tree.Difference(before, after)) == 0
}

// guard calls the caller's function, whose panic becomes an error.
func guard(fn func(Object) error, obj Object) (err error) {
	if p := protect.Call(func() { err = fn(obj) }); p != nil {
		return fmt.Errorf("panic in the function that modifies the object: %w", p)
	}
	return err
}

// settle waits after a conflict until a newer state than the one that conflicted can be read, from the cache or else
// from the server.
func (m *modification) settle(ctx context.Context, stale string, delay time.Duration) error {
	st := m.w.c.watched(m.w.k)
	if st != nil && unordered(st) {
		return m.poll(ctx, st, stale)
	}
	if err := backoff.Pause(ctx, delay); err != nil {
		return errors.Join(m.w.fail(err), m.last)
	}
	m.live = true
	if st != nil && !m.w.o.live {
		if r, ok := st.Get(m.w.key); ok {
			order, ok := resourceversion.Compare(r.Version(), stale)
			m.live = !ok || order <= 0
		}
	}
	return nil
}

// poll looks at the cache until the version has changed. Versions that cannot be ordered leave no other way: a state
// read from the server might be ahead of the cache, and could not be told from one that is behind it.
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
		if !ok { // the server says what there is
			return nil
		}
	}
}

// assign makes dst, which has the same type, what src is.
func assign(dst, src Object) error {
	raw, err := json.Marshal(src)
	if err != nil {
		return err
	}
	clearObject(dst)
	return json.Unmarshal(raw, dst)
}
