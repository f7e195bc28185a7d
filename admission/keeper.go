package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/admission/internal/authority"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/backoff"
)

const (
	// checkTime bounds one check, so it does not act on state older than this.
	checkTime = 30 * time.Second
	// rounds bounds how often a check restarts because another replica made a concurrent change.
	rounds = 20
	// spacing is the minimum interval between checks. It bounds how often two programs with different configurations
	// overwrite each other.
	spacing = time.Second
)

// errNotYet means that a check ended before a round without changes.
var errNotYet = errors.New("other replicas change it at the same time")

// keeper keeps the Secret, the configurations and the served certificate in the wanted state. It must be used by one
// goroutine at a time.
type keeper struct {
	calls       *call.Client
	manifests   *manifests
	authorities *authorities
	certificate *certificate
	repairs     *repairs
	manager     string   // field manager of the configurations
	hosts       []string // of the certificate
	every       time.Duration
	log         *slog.Logger
	written     func(kind string) // called after a write of a configuration
}

// begin repeats the check until it succeeds, and calls failed after each failure. It returns an error that waiting
// cannot resolve. If degraded is true, waiting can resolve that the API server does not serve a type.
func (k *keeper) begin(ctx context.Context, degraded bool, failed func(error)) error {
	policy := backoff.Policy{Base: 500 * time.Millisecond, Cap: max(k.every, 10*time.Second)}
	for i := 0; ; i++ {
		err := k.check(ctx, true)
		switch {
		case err == nil:
			return k.repairs.takeAndAwait(ctx)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrNotServed) && !degraded, apierrors.IsInvalid(err):
			return err
		}
		failed(err)
		k.log.ErrorContext(ctx, "webhooks are not served yet", "error", err)
		if err := backoff.Pause(ctx, policy.Delay(i, rand.Float64)); err != nil {
			return err
		}
	}
}

// run repeats the check at intervals and when a definition has changed, until ctx ends. It returns an error if the
// program must exit.
func (k *keeper) run(ctx context.Context, changed <-chan struct{}) error {
	policy := backoff.Policy{Base: 500 * time.Millisecond, Cap: k.every}
	failures := 0
	for {
		pause := k.every*3/4 + rand.N(k.every/2)
		if failures > 0 {
			pause = min(pause, policy.Delay(failures-1, rand.Float64))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		err := k.check(ctx, false)
		if failures++; err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			k.log.ErrorContext(ctx, "cannot maintain the webhook configurations", "error", err, "expires",
				k.certificate.leaf().NotAfter)
		}
		if err := k.repairs.take(); err != nil {
			return err
		}
		if err := backoff.Pause(ctx, min(spacing, k.every)); err != nil {
			return nil //nolint:nilerr // the end of the context is no failure
		}
	}
}

// check corrects the Secret, then the configurations, then the served certificate. Each write is conditional on the
// version that was read, and configurations are read before the Secret. A replica that has read an older Secret
// therefore cannot overwrite a configuration made from a newer one.
func (k *keeper) check(ctx context.Context, first bool) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	targets, err := k.manifests.targets()
	if err != nil {
		return err
	}
	policy := backoff.Policy{Base: 20 * time.Millisecond, Cap: time.Second}
	for i := range rounds {
		again, err := k.round(ctx, targets, first)
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
func (k *keeper) round(ctx context.Context, targets []*target, first bool) (again bool, _ error) {
	for _, t := range targets {
		if err := t.read(ctx, k.calls); err != nil {
			return false, err
		}
	}
	set, again, err := k.authorities.keep(ctx, targets)
	if again || err != nil {
		return again, err
	}
	for _, t := range targets {
		wrote, err := k.keep(ctx, t, set.Bundle(), first)
		if err != nil {
			return false, err
		}
		again = again || wrote
	}
	if again {
		return true, nil
	}
	return false, k.renew(ctx, set)
}

// keep corrects one object of the API server.
func (k *keeper) keep(ctx context.Context, t *target, bundle []byte, first bool) (wrote bool, _ error) {
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
		if k.repairs.reportCondition(ctx, t) {
			return true, nil
		}
	case t.isNone(): // the definition has only one version
		return false, nil
	case t.matches(want) && (!first || want == nil):
		return false, nil
	}
	changed, err := t.write(ctx, k.calls, want, k.manager)
	switch {
	case apierrors.IsConflict(err) || t.entries == "" && apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsInvalid(err):
		return false, k.manifests.blame(fmt.Errorf("cannot write %s: %w", t, err), want)
	case err != nil:
		return false, fmt.Errorf("cannot write %s: %w", t, err)
	case !changed:
		return false, nil
	}
	k.written(t.kind)
	k.log.InfoContext(ctx, "webhook configuration written", "object", t.String(), "removed", want == nil)
	if dropsFields {
		k.repairs.report(ctx, t)
	}
	return true, nil
}

// renew replaces the served certificate if it is due. All configurations must contain all authorities of the set.
func (k *keeper) renew(ctx context.Context, set authority.Set) error {
	signer, renewed, err := k.certificate.renew(set, k.authorities.lifetimes, k.hosts)
	if renewed {
		k.log.InfoContext(ctx, "certificate issued", "authority", signer, "hosts", k.hosts, "expires",
			k.certificate.leaf().NotAfter)
	}
	return err
}
