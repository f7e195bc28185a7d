package fairlead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/why"
)

// whyTimeout bounds the requests that a question leads to: whoever asks why nothing moves must not wait for what hangs.
const whyTimeout = 5 * time.Second

// Explain has [Runtime.Why] ask e, too, before all else: what runs in the program beside controllers and knows causes.
// It may be called at any time. One that panics tells nothing.
func (rt *Runtime) Explain(e why.Explainer) {
	if e == nil {
		rt.mistake(errors.New("cannot explain why objects do not move: the explainer is nil"))
		return
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.explainers = append(rt.explainers, e)
}

// Why says why an object does not move on: what was added with Explain is asked, then the controllers of its kind and
// the fibers that work for them, who leads or holds its slot, how old what is known of it is, and the object itself. It
// is read from the cache where that holds it, else from the API server.
//
// The kind may be written as kubectl takes it: "Deployment", "deploy", "deployments.apps"; the answer has its real name.
// The group may be left out. Of several clusters each is asked that has such a kind.
//
// The error matches [why.ErrNotFound] if there is no such object, and nothing is known under its name either; for a kind
// that the API server does not have it says so. It may be called at any time, by many at a time.
func (rt *Runtime) Why(ctx context.Context, of why.Object) (why.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	var errs []error
	var answers []why.Answer
	for _, c := range rt.members() {
		a, err := c.why(ctx, of)
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot say why %s does not move: %w", of, err))
			continue
		}
		answers = append(answers, a)
	}
	switch len(answers) {
	case 0:
		i := slices.IndexFunc(errs, func(err error) bool { return !errors.Is(err, why.ErrNotFound) })
		return why.Answer{}, errs[max(i, 0)]
	case 1:
		return answers[0], nil
	}
	var causes []why.Cause
	for _, a := range answers {
		causes = append(causes, a.Causes...)
	}
	first := answers[0]
	return why.NewAnswer(why.Object{Kind: first.Kind, Namespace: first.Namespace, Name: first.Name}, causes), nil
}

// why is Runtime.Why for one cluster.
func (c *Cluster) why(ctx context.Context, of why.Object) (why.Answer, error) {
	if c.client == nil {
		return why.Answer{}, client.ErrNotMade
	}
	if of.Kind == "" || of.Name == "" {
		return why.Answer{}, errors.New("it needs a kind and a name")
	}
	kind, err := c.kindNamed(of)
	if err != nil {
		return why.Answer{}, err
	}
	of.Group, of.Kind = kind.Group, kind.Kind
	if !kind.namespaced {
		of.Namespace = ""
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(kind.GroupVersionKind)
	err = c.client.Get(ctx, client.Key{Namespace: of.Namespace, Name: of.Name}, obj)
	there := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return why.Answer{}, err
	}
	c.rt.mu.Lock()
	explainers := slices.Clone(c.rt.explainers)
	c.rt.mu.Unlock()
	var causes []why.Cause
	for _, e := range explainers {
		causes = append(causes, c.ask(ctx, of, e)...)
	}
	if !there && len(causes) == 0 {
		return why.Answer{}, why.ErrNotFound
	}
	return why.NewAnswer(of, causes), nil
}

// ask protects the others from an explainer that panics.
func (c *Cluster) ask(ctx context.Context, of why.Object, e why.Explainer) (causes []why.Cause) {
	if p := protect.Call(func() { causes = e.Why(ctx, of) }); p != nil {
		c.log.ErrorContext(ctx, "an explainer panicked", "object", of.String(), "error", p, "stack", string(p.Stack))
		return nil
	}
	return causes
}
