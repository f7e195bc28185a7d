package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/admission/internal/authority"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/backoff"
)

var secrets = corev1.SchemeGroupVersion.WithResource("secrets")

// lookTime bounds one look, so it does not act on state older than this.
const lookTime = 30 * time.Second

// rounds bounds how often a look restarts because another replica made a concurrent change.
const rounds = 20

// errNotYet means that look ended before a round without changes.
var errNotYet = errors.New("other replicas change it at the same time")

// look corrects the Secret, then the configurations, then the served certificate. Each write is conditional on the
// version that was read, and configurations are read before the Secret. A replica that has read an older Secret
// therefore cannot overwrite a configuration made from a newer one.
func (h *Hooks) look(ctx context.Context, first bool) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	targets, err := h.targets()
	if err != nil {
		return err
	}
	policy := backoff.Policy{Base: 20 * time.Millisecond, Cap: time.Second}
	for i := range rounds {
		again, err := h.round(ctx, targets, first)
		if err != nil || !again {
			return err
		}
		first = false
		if err := backoff.Pause(ctx, policy.Delay(i, rand.Float64)); err != nil {
			return err
		}
	}
	return errNotYet
}

// round is one attempt. again reports that an object was written or has changed concurrently and must be read again.
func (h *Hooks) round(ctx context.Context, targets []*target, first bool) (again bool, _ error) {
	for _, t := range targets {
		if err := t.read(ctx, h.host.Calls()); err != nil {
			return false, err
		}
	}
	set, again, err := h.authorities(ctx, targets)
	if again || err != nil {
		return again, err
	}
	for _, t := range targets {
		wrote, err := h.keep(ctx, t, set.Bundle(), first)
		if err != nil {
			return false, err
		}
		again = again || wrote
	}
	if again {
		return true, nil
	}
	return false, h.renew(ctx, set)
}

// keep corrects one object of the API server.
func (h *Hooks) keep(ctx context.Context, t *target, bundle []byte, first bool) (wrote bool, _ error) {
	var (
		want map[string]any
		err  error
	)
	if t.want != nil {
		if want, err = t.want(bundle); err != nil {
			return false, err
		}
		if t.entries == "" && t.live == nil {
			return false, fmt.Errorf("cannot convert: there is no %s", t)
		}
	}
	dropsFields := t.dropsFields()
	switch {
	case dropsFields:
		if h.reportCondition(ctx, t) {
			return true, nil
		}
	case t.isNone(): // the definition has only one version
		return false, nil
	case t.settled(want) && (!first || want == nil):
		return false, nil
	}
	changed, err := t.write(ctx, h.host.Calls(), want, h.manager())
	switch {
	case apierrors.IsConflict(err) || t.entries == "" && apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("cannot write %s: %w", t, err)
	case !changed:
		return false, nil
	}
	h.metrics.writes.WithLabelValues(t.kind).Inc()
	h.log.InfoContext(ctx, "webhook configuration written", "object", t.String(), "removed", want == nil)
	if dropsFields {
		h.reportRepair(ctx, t)
	}
	return true, nil
}

// manager is the field manager of the configurations.
func (h *Hooks) manager() string { return "fairlead-admission-" + h.o.Name }

// authorities returns the authorities of the Secret and creates or repairs the Secret if necessary. again reports that
// the Secret was written.
func (h *Hooks) authorities(ctx context.Context, targets []*target) (_ authority.Set, again bool, _ error) {
	secret, err := h.secret(ctx)
	if err != nil {
		return nil, false, err
	}
	var data map[string][]byte
	if secret != nil {
		data = secret.Data
	}
	set, broken := authority.Parse(data)
	now, l := h.o.Certificates.Now(), h.o.Certificates.lifetimes()
	plan := set.Plan(now, l)
	if !plan.Stage && broken == nil && len(plan.Keep) == len(set) {
		return set, false, nil
	}
	if broken != nil {
		h.log.ErrorContext(ctx, "the Secret of the authorities was invalid and was repaired", "secret", h.o.Secret, "error", broken)
	}
	next := plan.Keep
	if plan.Alone || broken != nil { // other replicas may serve certificates of an authority that is missing in the Secret
		for _, t := range targets {
			for _, a := range t.trusted() {
				if !a.Ended(now) {
					next = next.With(a.Trusted())
				}
			}
		}
	}
	var made authority.Authority
	if plan.Stage {
		if made, err = authority.New(now, h.o.Name+" webhooks", l.Authority); err != nil {
			return nil, false, err
		}
		next = next.With(made)
	}
	if data, err = next.Encode(data); err != nil {
		return nil, false, err
	}
	err = h.writeSecret(ctx, secret, data)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || secret != nil && apierrors.IsNotFound(err) {
		return nil, true, nil // another replica has written the Secret
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot write the Secret of the authorities: %w", err)
	}
	h.metrics.writes.WithLabelValues("Secret").Inc()
	if plan.Stage {
		h.log.InfoContext(ctx, "authority issued", "id", made.ID(), "expires", made.Certificate.NotAfter, "only", plan.Alone)
	}
	return nil, true, nil
}

func (h *Hooks) secret(ctx context.Context) (*corev1.Secret, error) {
	answer, err := call.Do(ctx, h.host.Calls(), call.Request{
		Verb: call.VerbGet, Resource: secrets, Kind: "Secret", Namespace: h.o.Namespace, Name: h.o.Secret, NotFoundOK: true,
	}, call.Policy{})
	if err != nil || answer == nil {
		return nil, err
	}
	var s corev1.Secret
	if err := answer.Into(&s); err != nil {
		return nil, err
	}
	return &s, nil
}

// writeSecret creates the Secret if was is nil, or updates the version that was read.
func (h *Hooks) writeSecret(ctx context.Context, was *corev1.Secret, data map[string][]byte) error {
	request := call.Request{
		Verb: call.VerbUpdate, Resource: secrets, Kind: "Secret", Namespace: h.o.Namespace, Name: h.o.Secret,
		ConflictsExpected: true,
	}
	if was == nil {
		request.Verb, request.Name = call.VerbCreate, h.o.Secret
		was = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: h.o.Namespace, Name: h.o.Secret, Labels: map[string]string{label: h.o.Name},
			},
			Type: corev1.SecretTypeOpaque,
		}
	}
	was.Data = data
	request.Object = was
	_, err := call.Do(ctx, h.host.Calls(), request, call.Policy{})
	return err
}

// renew replaces the served certificate if it is due. All configurations must contain all authorities of the set.
func (h *Hooks) renew(ctx context.Context, set authority.Set) error {
	now, l := h.o.Certificates.Now(), h.o.Certificates.lifetimes()
	since := map[string]time.Time{}
	for _, a := range set {
		since[a.ID()] = now
		if at, known := h.since[a.ID()]; known {
			since[a.ID()] = at
		}
	}
	h.since = since
	signer, settled, ok := set.Signer(now, l, since)
	if !ok {
		return errors.New("cannot issue a certificate: no authority is valid now; check the clock")
	}
	if !set.Renew(now, h.leaf(), signer, settled) {
		return nil
	}
	cert, err := signer.Issue(now, h.o.hosts(), l.Leaf)
	if err != nil {
		return err
	}
	h.serving.Store(cert)
	h.log.InfoContext(ctx, "certificate issued", "authority", signer.ID(), "hosts", h.o.hosts(), "expires",
		cert.Leaf.NotAfter)
	return nil
}
