package admission

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/admission/internal/authority"
	"github.com/fairlead-io/fairlead/call"
)

var secrets = corev1.SchemeGroupVersion.WithResource("secrets")

// authorities are the authorities in the Secret of all replicas. It has no state besides the Secret.
type authorities struct {
	calls             *call.Client
	namespace, secret string
	name              string // of the hooks
	lifetimes         authority.Lifetimes
	now               func() time.Time
	log               *slog.Logger
	written           func() // called after a write of the Secret
}

// keep returns the authorities of the Secret and creates or repairs the Secret if necessary. again reports that
// the Secret was written.
func (s *authorities) keep(ctx context.Context, targets []*target) (_ authority.Set, again bool, _ error) {
	secret, err := s.read(ctx)
	if err != nil {
		return nil, false, err
	}
	var data map[string][]byte
	if secret != nil {
		data = secret.Data
	}
	set, broken := authority.Parse(data)
	now, l := s.now(), s.lifetimes
	plan := set.Plan(now, l)
	if !plan.Stage && broken == nil && len(plan.Keep) == len(set) {
		return set, false, nil
	}
	if broken != nil {
		s.log.ErrorContext(ctx, "the Secret of the authorities was invalid and was repaired", "secret", s.secret, "error",
			broken)
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
		if made, err = authority.New(now, s.name+" webhooks", l.Authority); err != nil {
			return nil, false, err
		}
		next = next.With(made)
	}
	if data, err = next.Encode(data); err != nil {
		return nil, false, err
	}
	err = s.write(ctx, secret, data)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || secret != nil && apierrors.IsNotFound(err) {
		return nil, true, nil // another replica has written the Secret
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot write the Secret of the authorities: %w", err)
	}
	s.written()
	if plan.Stage {
		s.log.InfoContext(ctx, "authority issued", "id", made.ID(), "expires", made.Certificate.NotAfter, "only", plan.Alone)
	}
	return nil, true, nil
}

func (s *authorities) read(ctx context.Context) (*corev1.Secret, error) {
	answer, err := call.Do(ctx, s.calls, call.Request{
		Verb: call.VerbGet, Resource: secrets, Kind: "Secret", Namespace: s.namespace, Name: s.secret, NotFoundOK: true,
	}, call.Policy{})
	if err != nil || answer == nil {
		return nil, err
	}
	var secret corev1.Secret
	if err := answer.Into(&secret); err != nil {
		return nil, err
	}
	return &secret, nil
}

// write creates the Secret if was is nil, or updates the version that was read.
func (s *authorities) write(ctx context.Context, was *corev1.Secret, data map[string][]byte) error {
	request := call.Request{
		Verb: call.VerbUpdate, Resource: secrets, Kind: "Secret", Namespace: s.namespace, Name: s.secret,
		ConflictsExpected: true,
	}
	if was == nil {
		request.Verb, request.Name = call.VerbCreate, s.secret
		was = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.namespace, Name: s.secret, Labels: map[string]string{label: s.name},
			},
			Type: corev1.SecretTypeOpaque,
		}
	}
	was.Data = data
	request.Object = was
	_, err := call.Do(ctx, s.calls, request, call.Policy{})
	return err
}
