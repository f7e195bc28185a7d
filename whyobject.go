package fairlead

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/why"
)

// elsewhere returns the causes that another process works on the object.
func (q *question) elsewhere(ctx context.Context) []why.Cause {
	now := q.in.phase()
	if g := q.in.group; g != nil {
		if q.obj == nil {
			return nil
		}
		return g.Why(q.of.Namespace, q.obj.GetUID())
	}
	switch now {
	case phaseNew:
		return []why.Cause{{
			Type: why.NotLeading, Message: "this process has not started: Run was not called",
			Evidence: map[string]string{"phase": string(now)}, Advice: "Check why the program does not call Run.",
		}}
	case phaseStopping:
		return []why.Cause{{
			Type: why.NotLeading, Message: "this process is stopping",
			Evidence: map[string]string{"phase": string(now)},
			Advice:   "It continues in another replica, or after the program restarts.",
		}}
	case phaseStandby:
		if e, ok := q.in.leadership.election.(why.Explainer); ok {
			if causes := q.in.ask(ctx, q.of, e); len(causes) > 0 {
				return causes
			}
		}
		leader, err := q.in.leadership.leader()
		c := why.Cause{
			Type: why.NotLeading, Message: leader, Evidence: map[string]string{"phase": string(now)},
			Advice: "Ask the leader.",
		}
		if err != nil {
			c.Message, c.Evidence["error"] = "this process does not lead: "+err.Error(), err.Error()
		}
		return []why.Cause{c}
	}
	return nil
}

// stores returns the causes that the stores of the resource know.
func (q *question) stores() (causes []why.Cause) {
	for _, st := range q.in.cache.Lookup(q.kind.resource) {
		causes = append(causes, st.Why(client.Key{Namespace: q.of.Namespace, Name: q.of.Name})...)
	}
	return causes
}

// catchUp is how long a watch may take to deliver the state that the server has returned.
const catchUp = 500 * time.Millisecond

// behind returns the causes for watches that do not deliver the state of the server.
func (q *question) behind(ctx context.Context) (causes []why.Cause) {
	if q.obj == nil || len(q.silent) > 0 {
		return nil
	}
	late := time.NewTimer(catchUp)
	defer late.Stop()
	tick := time.NewTicker(catchUp / 20)
	defer tick.Stop()
	for _, st := range q.in.cache.Lookup(q.kind.resource) {
		over := false
		for {
			rec, ok := st.Get(client.Key{Namespace: q.of.Namespace, Name: q.of.Name})
			if !ok || !resourceversion.Older(rec.Version(), q.obj.GetResourceVersion()) {
				break
			}
			if over {
				known, has := rec.Version(), q.obj.GetResourceVersion()
				causes = append(causes, why.Cause{
					Type: why.SourceStale,
					Message: fmt.Sprintf("the watch delivers nothing: the API server has version %s of the object, "+
						"and the cache has %s", has, known),
					Evidence: map[string]string{
						"resource": q.kind.resource.GroupResource().String(), "known": known, "server": has,
					},
					Advice: "A proxy or firewall between this process and the API server keeps the watch open but " +
						"delivers nothing.",
				})
				break
			}
			select {
			case <-tick.C:
			case <-late.C:
				over = true
			case <-ctx.Done():
				over = true
			}
		}
	}
	return causes
}

// longBehind is the age of an unhandled event from which an observer counts as a cause.
const longBehind = 5 * time.Second

// observers returns the observers of the kind that are behind. They may not know the current state of the object yet.
func (q *question) observers() (causes []why.Cause) {
	if q.obj == nil {
		return nil
	}
	sources := q.in.observers.Describe().Sources
	shows := selectorsOf(q.kind.GroupKind(), sources)
	for _, s := range sources {
		if !shows[selectorText(s.Selector)] {
			continue
		}
		for _, o := range s.Observers {
			late := time.Since(o.BehindSince)
			if o.BehindSince.IsZero() || late < longBehind {
				continue
			}
			late = late.Round(time.Second)
			causes = append(causes, why.Cause{
				Type: why.QueuedBehind, Since: o.BehindSince,
				Message: fmt.Sprintf(
					"observer %s is %v behind, so it may not have received the current state of the object", o.Name, late),
				Evidence: map[string]string{
					"observer": o.Name, "at": o.At, "behind": late.String(), "lag": fmt.Sprint(o.Stats.Lag),
					"delivery": o.Delivery,
				},
				Advice: "Check where it spends its time: /debug/pprof/goroutine?debug=2. observe.Async handles several " +
					"objects at once.",
			})
		}
	}
	return causes
}

// selectorsOf returns the selectors of the sources that deliver objects of a kind: those that watch it, and filters and
// joins derived from these.
func selectorsOf(kind schema.GroupKind, sources []inspect.Source) map[string]bool {
	found := map[string]bool{}
	for more := true; more; {
		more = false
		for _, s := range sources {
			name := selectorText(s.Selector)
			derived := slices.ContainsFunc(s.From, func(of string) bool { return found[of] })
			if found[name] || s.Kind.GroupKind() != kind && !derived {
				continue
			}
			found[name], more = true, true
		}
	}
	return found
}

// selectorText returns the text of a selector with these names, as in inspect.Source.From.
func selectorText(names []string) string { return strings.Join(names, " + ") }

// unwatched returns the cause that no part of the program works on the object, if no other cause is known.
func (q *question) unwatched(controllers int, causes []why.Cause) []why.Cause {
	if q.obj == nil || len(causes) > 0 {
		return nil
	}
	stores := q.in.cache.Lookup(q.kind.resource)
	if len(stores) == 0 {
		return []why.Cause{{
			Type: why.NotSelected, Message: fmt.Sprintf("this program does not watch %s at all",
				q.kind.resource.GroupResource()),
			Evidence: map[string]string{
				"resource":    q.kind.resource.GroupResource().String(),
				"controllers": fmt.Sprint(controllers),
			},
			Advice: "Another program is responsible for it, or this program lacks a controller for the kind.",
		}}
	}
	var excluded []why.Cause
	for _, st := range stores {
		c, out := st.Excludes(q.of.Namespace, q.obj.GetLabels())
		if !out {
			return []why.Cause{{
				Type: why.Ended, Message: "this program watches it and has no pending work for it",
				Evidence: map[string]string{"resource": q.kind.resource.GroupResource().String()},
			}}
		}
		excluded = append(excluded, c)
	}
	return excluded
}

// deleted returns the foreign finalizers that keep an object under deletion. It returns none while a finalizer of this
// program is pending and other causes explain why.
func (q *question) deleted(causes []why.Cause) []why.Cause {
	if q.obj == nil || q.obj.GetDeletionTimestamp() == nil {
		return nil
	}
	since := q.obj.GetDeletionTimestamp().Time
	var foreign []string
	ours := map[string]bool{}
	var owners []any
	for _, ctl := range q.in.controllers {
		owners = append(owners, ctl)
	}
	for _, e := range q.in.explainers {
		owners = append(owners, e)
	}
	for _, owner := range owners {
		o, sets := owner.(interface {
			Finalizer(group, kind string) (string, bool)
		})
		if !sets {
			continue
		}
		if f, ok := o.Finalizer(q.of.Group, q.of.Kind); ok {
			ours[f] = true
		}
	}
	pending := false
	for _, f := range q.obj.GetFinalizers() {
		if ours[f] {
			pending = true
			continue
		}
		foreign = append(foreign, f)
	}
	if q.of.Kind == "Namespace" && q.of.Group == "" && len(q.obj.GetFinalizers()) == 0 {
		foreign = append(foreign, "kubernetes") // in its spec, until the namespace is empty
	}
	stuck := slices.ContainsFunc(causes, func(c why.Cause) bool { return c.Type != why.Ended })
	told := slices.ContainsFunc(causes, func(c why.Cause) bool { return c.Type == why.ForeignFinalizer })
	if len(foreign) == 0 || pending && stuck || told {
		return nil
	}
	names := strings.Join(foreign, ", ")
	c := why.Cause{
		Type: why.ForeignFinalizer, Since: since,
		Message: fmt.Sprintf(
			"it is being deleted, and its deletion is blocked by %s, which this program does not remove", names),
		Evidence: map[string]string{"finalizers": names, "deleted": since.UTC().Format("2006-01-02T15:04:05Z")},
		Advice: "Check the program that set the finalizer. Removing the finalizer by hand skips the cleanup that it " +
			"stands for.",
	}
	switch {
	case slices.Equal(foreign, []string{"foregroundDeletion"}):
		c.Advice = "The garbage collector deletes its dependents first. Check the dependents that block its deletion."
	case q.of.Kind == "Namespace" && slices.Contains(foreign, "kubernetes"):
		c.Advice = "Its conditions list the objects that are left in it (kubectl get namespace -o yaml)."
	}
	return []why.Cause{c}
}
