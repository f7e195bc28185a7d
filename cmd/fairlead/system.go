package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/operation/executor"
)

const (
	// callbackSecret holds the key of callback tokens.
	callbackSecret = "fairlead-callback-key"
	// annotationMoved of that Secret is the version of the operations when a leader first worked with the key in it
	// instead of the one in the place of before.
	annotationMoved = "fairlead.io/moved-at-version"
	// leaseDuration is for how long others respect the Lease of a leader that does not renew it.
	leaseDuration = 15 * time.Second
)

// placeSystem decides where callback key and Lease are: where --system-namespace says, else in the namespace that is
// served, or in the own one (of the pod, or of the context) where all or several are: who may read the Secrets of one
// could else forge callbacks of the others.
func (o *controllerOptions) placeSystem(own string) error {
	served := slices.Compact(slices.Sorted(slices.Values(o.namespaces)))
	switch {
	case o.systemNamespace != "":
		if wrong := validation.IsDNS1123Label(o.systemNamespace); len(wrong) > 0 {
			return usageErrorf("--system-namespace %q is not the name of a namespace: %s", o.systemNamespace, wrong[0])
		}
	case len(served) == 0, len(served) > 1 && !slices.Contains(served, own):
		o.systemNamespace = own
	default:
		o.systemNamespace = o.namespaces[0]
	}
	return nil
}

// warnOfSystem says so where one of several namespaces has what all share.
func (c *controller) warnOfSystem(ctx context.Context) {
	if served := slices.Compact(slices.Sorted(slices.Values(c.namespaces))); len(served) > 1 &&
		slices.Contains(served, c.systemNamespace) {
		c.log.WarnContext(
			ctx, "callback key and Lease are in one of the namespaces that are served: who may read Secrets there can forge callbacks of "+
				"the others; name another one with --system-namespace", "namespace", c.systemNamespace,
		)
	}
}

// callbackKey returns the key of callback tokens, which all replicas share: from a Secret that the first of them makes.
func callbackKey(ctx context.Context, calls *call.Client, namespace string) ([]byte, error) {
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // it never fails
	request := secretRequest(call.VerbCreate, namespace)
	request.Object = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: callbackSecret, Namespace: namespace},
		Data:       map[string][]byte{"key": fresh},
	}
	answer, err := call.Do(ctx, calls, request, call.Policy{})
	if apierrors.IsAlreadyExists(err) {
		answer, err = call.Do(ctx, calls, secretRequest(call.VerbGet, namespace), call.Policy{})
	}
	var secret corev1.Secret
	if err == nil {
		err = answer.Into(&secret)
	}
	if err == nil && len(secret.Data["key"]) < minKey {
		err = fmt.Errorf("it has no key of at least %d bytes: delete it, and a new one is made", minKey)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read secret %s/%s (--system-namespace says where it is): %w", namespace,
			callbackSecret, err)
	}
	return secret.Data["key"], nil
}

const minKey = 16

func secretRequest(verb call.Verb, namespace string) call.Request {
	return call.Request{
		Verb: verb, Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Kind: "Secret", Namespace: namespace,
		Name: callbackSecret,
	}
}

// move is that of callback key and Lease to another namespace. The key of before counts for the operations of its
// namespace that began under it: the version of the operations when the first leader worked with the new one is noted
// in the new Secret.
type move struct {
	calls    *call.Client
	from, to string // namespaces

	mu sync.Mutex
	at string // the version, empty while it is not known
}

// former returns the key of before; nil if there is none, or it is not for us any more.
func (m *move) former(ctx context.Context) (*executor.FormerKey, error) {
	if m.from == m.to {
		return nil, nil
	}
	request := secretRequest(call.VerbGet, m.from)
	request.NotFoundOK = true
	answer, err := call.Do(ctx, m.calls, request, call.Policy{})
	if apierrors.IsForbidden(err) || err == nil && answer == nil {
		return nil, nil
	}
	var secret corev1.Secret
	if err == nil {
		err = answer.Into(&secret)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read secret %s/%s, the callback key of before: %w", m.from, callbackSecret, err)
	}
	if len(secret.Data["key"]) < minKey {
		return nil, nil
	}
	return &executor.FormerKey{Key: secret.Data["key"], Namespace: m.from, Began: m.before}, nil
}

// before tells whether an operation that was accepted in a version began before the move.
func (m *move) before(ctx context.Context, version string) (bool, error) {
	at, err := m.known(ctx)
	// a leader of before is still at work; or of a time when that was not recorded
	if err != nil || at == "" || version == "" {
		return err == nil, err
	}
	order, ok := resourceversion.Compare(version, at)
	if !ok {
		return false, fmt.Errorf("cannot compare the resource versions %q and %q", version, at)
	}
	return order <= 0, nil
}

func (m *move) known(ctx context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at != "" {
		return m.at, nil
	}
	secret, err := m.secret(ctx)
	if err == nil {
		m.at = secret.Annotations[annotationMoved]
	}
	return m.at, err
}

func (m *move) secret(ctx context.Context) (*corev1.Secret, error) {
	answer, err := call.Do(ctx, m.calls, secretRequest(call.VerbGet, m.to), call.Policy{})
	secret := &corev1.Secret{}
	if err == nil {
		err = answer.Into(secret)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read secret %s/%s: %w", m.to, callbackSecret, err)
	}
	return secret, nil
}

// record notes the move, if that is not done: by a leader that nobody works beside.
func (m *move) record(ctx context.Context) error {
	for {
		secret, err := m.secret(ctx)
		if err != nil || secret.Annotations[annotationMoved] != "" {
			return err
		}
		answer, err := call.Do(ctx, m.calls, call.Request{
			Verb: call.VerbList, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: m.from,
			Query: url.Values{"limit": {"1"}},
		}, call.Policy{})
		var list metav1.PartialObjectMetadataList
		if err == nil {
			err = answer.Into(&list)
		}
		var body []byte
		if err == nil {
			body, err = json.Marshal(map[string]any{"metadata": map[string]any{
				"resourceVersion": secret.ResourceVersion, "annotations": map[string]string{annotationMoved: list.ResourceVersion},
			}})
		}
		if err == nil {
			request := secretRequest(call.VerbPatch, m.to)
			request.PatchType, request.Body, request.ConflictsExpected = types.MergePatchType, body, true
			_, err = call.Do(ctx, m.calls, request, call.Policy{})
		}
		if !apierrors.IsConflict(err) {
			if err != nil {
				err = fmt.Errorf("cannot note that the callback key has moved from namespace %s to %s: %w", m.from, m.to, err)
			}
			return err
		}
	}
}

// awaitFormer waits until nobody can lead by the Lease in the place of before, which this account may not hold: no
// replica can that runs as it, and what is held of it has to expire before the first leader in the new place begins.
func (c *controller) awaitFormer(ctx context.Context) error {
	if c.moving != nil {
		if at, err := c.moving.known(ctx); err == nil && at != "" {
			return nil // another leader has waited
		}
	}
	c.log.InfoContext(
		ctx, "the Lease in the place of before may not be held any more: waiting until one that is held has expired",
		"namespace", c.namespace,
	)
	timer := time.NewTimer(leaseDuration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// mayLead tells whether this account may read and write the Lease of a namespace.
func (c *controller) mayLead(ctx context.Context, namespace string) (bool, error) {
	request := call.Request{
		Verb: call.VerbGet, Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Kind: "Lease",
		Namespace: namespace, Name: leaseName, NotFoundOK: true,
	}
	answer, err := call.Do(ctx, c.rt.Calls(), request, call.Policy{})
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}}
	if err == nil {
		request.Verb, request.Object, request.Query = call.VerbCreate, lease, url.Values{"dryRun": {metav1.DryRunAll}}
		if answer != nil {
			request.Verb, err = call.VerbUpdate, answer.Into(lease)
		}
		request.ConflictsExpected = true
	}
	if err == nil {
		_, err = call.Do(ctx, c.rt.Calls(), request, call.Policy{})
	}
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err): // the latter where the namespace is gone
		return false, nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // others may, and so may this one
		return true, nil
	}
	return err == nil, err
}

// isMoved tells whether callback key and Lease are elsewhere than before.
func (c *controller) isMoved() bool { return c.systemNamespace != c.namespace }

// beforeCalls does what has to be done when this process leads and has not made a call.
func (c *controller) beforeCalls(ctx, term context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(term, end)()
	c.targets.await(ctx)
	if c.moving == nil || !c.isMoved() {
		return nil
	}
	err := c.moving.record(ctx)
	if err != nil && c.former == nil { // nobody will ask, but those who lead next may have to wait
		c.log.InfoContext(ctx, "the move of callback key and Lease is not noted", "error", err)
		err = nil
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}
