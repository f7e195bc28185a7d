package store

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	klabels "k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/why"
)

// settling is how long a watch that has worked may take to recover before that is a cause.
const settling = 2 * time.Second

// listing is the time within which the first list usually comes.
const listing = 5 * time.Second

// Why returns the reasons why the stored state of an object may be old: it cannot be read, or the source has not listed
// yet or has lost contact. It returns none for an object that is not selected; see Excludes.
func (s *Store) Why(k Key) []why.Cause {
	var causes []why.Cause
	s.mu.Lock()
	sc := s.scopes.of(k.Namespace)
	if sc != nil {
		if q, ok := sc.quarantine[k]; ok {
			causes = append(causes, s.quarantined(&q))
		}
	}
	s.mu.Unlock()
	if sc == nil {
		return causes
	}
	now := time.Now()
	for _, st := range s.Statuses() {
		if st.Namespace == sc.ns {
			if c, ok := s.stale(&st, now); ok {
				causes = append(causes, c)
			}
		}
	}
	return causes
}

func (s *Store) quarantined(q *source.Quarantined) why.Cause {
	return why.Cause{
		Type: why.Quarantined, Since: q.At,
		Message:  fmt.Sprintf("the object cannot be decoded and is quarantined: %v", q.Err),
		Evidence: map[string]string{"error": q.Err.Error(), "version": q.Version, "resource": s.resource()},
		Advice: "Correct the object, or its Go type. Other objects are not affected, and this one returns when it can " +
			"be read.",
	}
}

func (s *Store) resource() string { return s.opt.Resource.GroupResource().String() }

// stale returns the cause if the source of one scope does not work.
func (s *Store) stale(st *source.Status, now time.Time) (c why.Cause, stale bool) {
	switch {
	case st.Reason == source.ReasonNoSlots:
		return c, false
	case st.Synced && st.Phase != source.Degraded && (st.Phase == source.Watching || now.Sub(st.Since) < settling):
		return c, false
	}
	c = why.Cause{
		Type: why.SourceStale, Since: st.LastContact, Until: st.Next,
		Evidence: map[string]string{
			"resource": s.resource(), "phase": string(st.Phase), "reason": string(st.Reason),
			"synced": strconv.FormatBool(st.Synced),
		},
	}
	if c.Since.IsZero() {
		c.Since = st.Since
	}
	if c.Until.Before(now) {
		c.Until = time.Time{}
	}
	where := "all namespaces"
	if st.Namespace != "" {
		where = "namespace " + st.Namespace
		c.Evidence["namespace"] = st.Namespace
	}
	if with := s.opt.selectors(); with != "" {
		where += " with " + with
	}
	what := "has not been listed yet"
	switch {
	case st.Synced && st.LastContact.IsZero():
		what = "is as it was saved by an earlier run"
	case st.Synced:
		what = "is as old as " + st.LastContact.UTC().Format(time.RFC3339)
		c.Evidence["lastContact"] = st.LastContact.UTC().Format(time.RFC3339)
		c.Evidence["staleness"] = st.Staleness(now).Round(time.Second).String()
	}
	c.Message = fmt.Sprintf("the cached state of %s in %s %s: %s", s.resource(), where, what, st.Reason)
	if st.Message != "" {
		c.Message += ": " + st.Message
		c.Evidence["error"] = st.Message
	}
	c.Advice = s.advice(st)
	c.Progress = !st.Synced && st.Err == nil && st.Phase != source.Degraded && now.Sub(st.Since) < listing
	return c, true
}

// advice returns what an operator can do about a source that does not work.
func (s *Store) advice(st *source.Status) string {
	switch st.Reason {
	case source.ReasonForbidden:
		role := "a ClusterRole"
		if st.Namespace != "" {
			role = "a Role in namespace " + st.Namespace
		}
		return fmt.Sprintf(
			`Add the rule {apiGroups: [%q], resources: [%q], verbs: ["get", "list", "watch"]} to %s of this program.`,
			s.opt.Resource.Group, s.opt.Resource.Resource, role)
	case source.ReasonUnauthorized:
		return "The API server does not authenticate this program. Check its kubeconfig, or the token of its service account."
	case source.ReasonNotFound:
		return fmt.Sprintf("The API server does not serve %s. Install its CustomResourceDefinition.", s.resource())
	case source.ReasonTooManyRequests:
		if strings.Contains(st.Message, "conversion webhook") {
			return unconverted
		}
		return "The API server is overloaded or throttles this program. Check its priority levels."
	}
	if strings.Contains(st.Message, "conversion webhook") {
		return unconverted
	}
	return "Check that the API server answers and is reachable from this process."
}

const unconverted = "The API server cannot reach the conversion webhook of the kind. Check the program that serves it, " +
	"and spec.conversion of the CustomResourceDefinition."

// Excludes returns a cause NotSelected if the store would not hold an object of these labels in this namespace, which
// it may not watch. excluded is false if no known restriction applies. Field selectors count as a restriction, although
// they are not evaluated.
func (s *Store) Excludes(namespace string, labels map[string]string) (c why.Cause, excluded bool) {
	statuses := s.Statuses()
	inside := slices.ContainsFunc(statuses, func(st source.Status) bool {
		return st.Namespace == "" || st.Namespace == namespace
	})
	sel := s.selected.Load()
	c = why.Cause{Type: why.NotSelected, Evidence: map[string]string{
		"resource": s.resource(),
		"labels":   klabels.Set(labels).String(),
	}}
	if l := s.opt.LabelSelector; l != "" {
		c.Evidence["selector"] = l
	}
	if f := s.opt.FieldSelector; f != "" {
		c.Evidence["fields"] = f
	}
	switch {
	case !inside && len(statuses) > 0: // only some users may list the names of namespaces
		c.Evidence["namespaces"] = strconv.Itoa(len(statuses))
		c.Message = fmt.Sprintf("the program does not watch %s in namespace %s, only in others (%d)", s.resource(), namespace,
			len(statuses))
		c.Advice = "Let the program watch the namespace (cache.Namespaces), or move the object."
	case !sel.labels.Matches(klabels.Set(labels)):
		c.Message = fmt.Sprintf("its labels (%s) do not match the selector of the program: %s", c.Evidence["labels"],
			sel.labels)
		c.Evidence["selector"] = sel.labels.String()
		c.Advice = "Set the labels that the program selects, or change the selector."
	case !sel.fields.Empty():
		c.Evidence["fields"] = sel.fields.String()
		c.Message = fmt.Sprintf("it does not match the field selector of the program: %s", sel.fields)
		c.Advice = "Set the fields that the program selects, or change the selector."
	default:
		return c, false
	}
	return c, true
}
