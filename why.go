package fairlead

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/shard/group"
	"github.com/fairlead-io/fairlead/why"
)

// whyTimeout bounds all requests of one question, whyAnswer the first request. A question must not wait for a server
// that hangs.
const (
	whyTimeout = 5 * time.Second
	whyAnswer  = 2 * time.Second
)

// whyIn explains the state of an object in all clusters that have its kind.
func whyIn(ctx context.Context, clusters []*Host, of why.Object) (why.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	var errs []error
	var answers []why.Answer
	for _, c := range clusters {
		a, err := explain(ctx, witnessesOf(c), of)
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot explain the state of %s: %w", of, err))
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

// witnesses are the parts of a program that a question asks about one cluster.
type witnesses struct {
	client      *client.Client
	cache       *cache.Cache
	observers   *observe.Registry
	controllers []*reconcile.Controller // of the cluster
	explainers  []why.Explainer         // of the program
	engine      *flow.Engine            // nil: none
	group       *group.Group            // nil: no sharding
	leadership  *leadership
	phase       func() phase
	log         *slog.Logger
}

// witnessesOf returns the parts of the program of a cluster.
func witnessesOf(c *Host) *witnesses {
	rt := c.rt
	return &witnesses{
		client: c.conn.client, cache: c.conn.cache, observers: c.observers, controllers: c.roster.overseen(),
		explainers: rt.declared.explaining(), engine: rt.engines.get(), group: rt.Shards(), leadership: rt.leadership,
		phase: rt.now, log: c.log,
	}
}

// explain implements Runtime.Why for one cluster.
func explain(ctx context.Context, in *witnesses, of why.Object) (why.Answer, error) {
	if in.client == nil {
		return why.Answer{}, client.ErrNotMade
	}
	if of.Kind == "" || of.Name == "" {
		return why.Answer{}, errors.New("it needs a kind and a name")
	}
	kind, err := in.kind(of)
	if err != nil {
		return why.Answer{}, err
	}
	of.Group, of.Kind = kind.Group, kind.Kind
	switch {
	case !kind.namespaced:
		of.Namespace = ""
	case of.Namespace == "":
		return why.Answer{}, fmt.Errorf("%s is namespaced, and no namespace is given", of)
	}
	q := &question{in: in, of: of, kind: kind}
	if err := q.find(ctx); err != nil {
		return why.Answer{}, err
	}
	causes := q.causes(ctx)
	if len(causes) == 0 && q.missing != nil {
		return why.Answer{}, q.missing
	}
	return why.NewAnswer(of, causes), nil
}

// kind returns the kind that a caller named.
func (in *witnesses) kind(of why.Object) (namedKind, error) {
	return kindNamed(in.cache.Stores(schema.GroupVersionResource{}), in.client.Mapper(), of)
}

// question is a question about one object of one cluster.
type question struct {
	in   *witnesses
	of   why.Object
	kind namedKind
	// obj is the metadata of the object. It is nil if the object does not exist or could not be read; missing is then
	// the error.
	obj     *metav1.PartialObjectMetadata
	missing error
	// silent are the causes if the API server does not answer.
	silent   []why.Cause
	answered bool // the API server returned an error about more than the kind
	depth    int  // number of objects that wait for this one
	// followed are the objects examined for one answer, including this one.
	followed map[why.Object]bool
}

// find reads the object from the API server. If the server does not answer or must not be asked, find reads it from the
// cache.
func (q *question) find(ctx context.Context) error {
	key := client.Key{Namespace: q.of.Namespace, Name: q.of.Name}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(q.kind.GroupVersionKind)
	asked := time.Now()
	first, cancel := context.WithTimeout(ctx, whyAnswer)
	defer cancel()
	err := q.in.client.Live().Get(first, key, obj)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && !isAbsent(err) {
		live := err
		if q.watched() {
			err = q.in.client.Get(first, key, obj)
		}
		if causes := reconcile.Causes(live); !apierrors.IsForbidden(live) {
			q.silent = []why.Cause{q.noAnswer(live, causes[0], asked)}
		}
	}
	switch {
	case err == nil:
		q.obj = obj
	case isAbsent(err) && len(q.silent) == 0:
		q.missing = why.ErrNotFound
	default:
		q.missing = err
	}
	return nil
}

// isAbsent reports whether the error means that the object does not exist. A missing kind is not such an error.
func isAbsent(err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true // an error of the cache
	}
	d := answer.Status().Details
	return d != nil && d.Name != ""
}

// watched reports whether the cache has a store of the kind.
func (q *question) watched() bool { return len(q.in.cache.Lookup(q.kind.resource)) > 0 }

// noAnswer returns the cause for an API server that cannot be asked about the object.
func (q *question) noAnswer(err error, known why.Cause, asked time.Time) why.Cause {
	if known.Type == why.RetryAfter {
		known.Evidence["asked"] = asked.UTC().Format(time.RFC3339)
		return known
	}
	since := asked
	for _, st := range q.in.cache.Lookup(q.kind.resource) {
		for _, s := range st.Statuses() {
			if at := s.LastContact; !at.IsZero() && (s.Namespace == "" || s.Namespace == q.of.Namespace) && at.Before(since) {
				since = at
			}
		}
	}
	c := why.Cause{
		Type: why.SourceStale, Since: since, Message: fmt.Sprintf("the API server does not answer: %v", err),
		Evidence: map[string]string{
			"error": err.Error(), "resource": q.kind.resource.GroupResource().String(),
			"waited": time.Since(asked).Round(time.Millisecond).String(),
		},
		Advice: "Check that the API server is healthy and reachable from this process.",
	}
	if status := known.Evidence["status"]; status != "" && status != "0" {
		c.Message, c.Evidence["status"] = fmt.Sprintf("the API server does not return the object: %v", err), status
		q.answered = status != "404"
		if known.Advice != "" {
			c.Advice = known.Advice
		}
	}
	return c
}

// causes asks all sources of causes.
func (q *question) causes(ctx context.Context) []why.Cause {
	engine, controllers := q.in.engine, q.in.controllers
	var own []why.Cause
	for _, e := range q.in.explainers {
		own = append(own, q.in.ask(ctx, q.of, e)...)
	}
	if engine != nil {
		path := strings.TrimPrefix(q.of.Namespace+"/"+q.of.Name, "/")
		for _, key := range []string{path, q.of.Kind + "/" + path} {
			if h, ok := engine.Find(key); ok {
				own = append(own, h.Why(reconcile.Causes)...)
			}
		}
	}
	reconciled := q.controllers(ctx, controllers)
	if q.obj == nil && errors.Is(q.missing, why.ErrNotFound) {
		reconciled = slices.DeleteFunc(reconciled, isGeneral)
		return tidy(append(own, reconciled...))
	}
	causes := append(own, reconciled...)
	silent := q.silent
	if q.answered && !ended(own) { // the server's error says more about the object than the failure of a source
		causes, silent = slices.Insert(causes, len(own), silent...), nil
	}
	if !ended(own) { // completed work needs no leader or watch
		causes = append(append(causes, q.elsewhere(ctx)...), silent...)
		causes = append(append(causes, q.stores()...), q.behind(ctx)...)
		causes = append(append(causes, q.ailing(ctx)...), q.observers()...)
		causes = append(causes, q.unwatched(len(controllers), causes)...)
	}
	causes = append(causes, q.deleted(causes)...)
	return append(tidy(causes), q.beneath(ctx, causes)...)
}

// Bounds for following the objects that an object waits for: the depth, and the number of objects examined.
const (
	maxDepth    = 3
	maxFollowed = 8
)

// beneath returns the causes for the objects that are waited for, as far as this program knows them.
func (q *question) beneath(ctx context.Context, causes []why.Cause) (all []why.Cause) {
	if q.followed == nil {
		q.followed = map[why.Object]bool{q.of: true}
	}
	for _, cause := range causes {
		about := cause.About
		if cause.Type != why.Parked || cause.Progress || about == nil || q.depth >= maxDepth || len(q.silent) > 0 ||
			q.followed[*about] || len(q.followed) > maxFollowed {
			continue
		}
		q.followed[*about] = true
		kind, err := q.in.kind(*about)
		if err != nil {
			continue
		}
		next := &question{in: q.in, of: *about, kind: kind, depth: q.depth + 1, followed: q.followed}
		if err := next.find(ctx); err != nil || next.obj == nil || len(next.silent) > 0 {
			continue
		}
		for _, c := range why.Beneath(*about, next.known(ctx)) {
			c.Depth += cause.Depth
			all = append(all, c)
		}
	}
	return all
}

// known returns the causes of the object itself, without those of the whole program and without those that say that the
// program does not work on it.
func (q *question) known(ctx context.Context) []why.Cause {
	causes := slices.DeleteFunc(q.controllers(ctx, q.in.controllers), isGeneral)
	causes = append(causes, q.ailing(ctx)...)
	causes = append(causes, q.deleted(causes)...)
	return append(causes, q.beneath(ctx, causes)...)
}

// ask calls an explainer and recovers its panic.
func (in *witnesses) ask(ctx context.Context, of why.Object, e why.Explainer) (causes []why.Cause) {
	if p := protect.Call(func() { causes = e.Why(ctx, of) }); p != nil {
		in.log.ErrorContext(ctx, "an explainer panicked", "object", of.String(), "error", p, "stack", string(p.Stack))
		return nil
	}
	return causes
}

// controllers asks the controllers of the kind. It returns NotSelected causes only if no controller selects the object.
func (q *question) controllers(ctx context.Context, all []*reconcile.Controller) (causes []why.Cause) {
	var left []why.Cause
	for _, ctl := range all {
		told := q.in.ask(ctx, q.of, ctl)
		if len(told) > 0 && !slices.ContainsFunc(told, func(c why.Cause) bool { return c.Type != why.NotSelected }) {
			left = append(left, told...)
			continue
		}
		causes = append(causes, told...)
	}
	if len(causes) == 0 {
		return left
	}
	return causes
}

// isGeneral reports whether a cause does not concern one object alone.
func isGeneral(c why.Cause) bool {
	switch c.Type {
	case why.NotLeading, why.HeldBy, why.SourceStale, why.NotSelected, why.Ended:
		return true
	}
	return false
}

// ended reports whether all causes are why.Ended, and at least one exists.
func ended(causes []why.Cause) bool {
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c why.Cause) bool { return c.Type != why.Ended })
}

// tidy removes why.Ended causes if others exist.
func tidy(causes []why.Cause) []why.Cause {
	if ended(causes) {
		return causes
	}
	return slices.DeleteFunc(causes, func(c why.Cause) bool { return c.Type == why.Ended })
}
