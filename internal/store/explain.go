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

// recoveryTime is how long a watch that has worked may take to recover before that is a cause.
const recoveryTime = 2 * time.Second

// firstListTime is the time within which the first list usually comes.
const firstListTime = 5 * time.Second

// causesOf returns the reasons why a stored object may be old. unread is the object if it could not be read, and
// statuses are those of its scope.
func causesOf(opt *Options, unread *source.Quarantined, statuses []source.Status, now time.Time) (causes []why.Cause) {
	if unread != nil {
		causes = append(causes, quarantineCause(opt, unread))
	}
	for i := range statuses {
		if c, stale := staleCause(opt, &statuses[i], now); stale {
			causes = append(causes, c)
		}
	}
	return causes
}

// quarantineCause explains an object that could not be kept.
func quarantineCause(opt *Options, q *source.Quarantined) why.Cause {
	return why.Cause{
		Type: why.Quarantined, Since: q.At,
		Message:  fmt.Sprintf("the object cannot be decoded and is quarantined: %v", q.Err),
		Evidence: map[string]string{"error": q.Err.Error(), "version": q.Version, "resource": opt.resource()},
		Advice: "Correct the object, or its Go type. Other objects are not affected, and this one returns when it " +
			"can be read.",
	}
}

// staleCause returns the cause if the source of one scope does not work.
func staleCause(opt *Options, st *source.Status, now time.Time) (c why.Cause, stale bool) {
	switch {
	case st.Reason == source.ReasonNoSlots:
		return c, false
	case st.Synced && st.Phase != source.Degraded && (st.Phase == source.Watching || now.Sub(st.Since) < recoveryTime):
		return c, false
	}
	c = why.Cause{
		Type: why.SourceStale, Since: st.LastContact, Until: st.Next,
		Evidence: map[string]string{
			"resource": opt.resource(), "phase": string(st.Phase), "reason": string(st.Reason),
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
	if with := opt.selectors(); with != "" {
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
	c.Message = fmt.Sprintf("the cached state of %s in %s %s: %s", opt.resource(), where, what, st.Reason)
	if st.Message != "" {
		c.Message += ": " + st.Message
		c.Evidence["error"] = st.Message
	}
	c.Advice = advice(opt, st)
	c.Progress = !st.Synced && st.Err == nil && st.Phase != source.Degraded && now.Sub(st.Since) < firstListTime
	return c, true
}

// advice returns what an operator can do about a source that does not work.
func advice(opt *Options, st *source.Status) string {
	switch st.Reason {
	case source.ReasonForbidden:
		role := "a ClusterRole"
		if st.Namespace != "" {
			role = "a Role in namespace " + st.Namespace
		}
		return fmt.Sprintf(
			`Add the rule {apiGroups: [%q], resources: [%q], verbs: ["get", "list", "watch"]} to %s of this program.`,
			opt.Resource.Group, opt.Resource.Resource, role)
	case source.ReasonUnauthorized:
		return "The API server does not authenticate this program. Check its kubeconfig, or the token of its service " +
			"account."
	case source.ReasonNotFound:
		return fmt.Sprintf("The API server does not serve %s. Install its CustomResourceDefinition.", opt.resource())
	case source.ReasonProtocolError:
		return fmt.Sprintf("The response is not a list or watch of %s. Check what responds for the API server: a proxy in "+
			"between, or an aggregated API server of the group.", opt.resource())
	case source.ReasonTooManyRequests:
		if strings.Contains(st.Message, "conversion webhook") {
			return noConversion
		}
		return "The API server is overloaded or throttles this program. Check its priority levels."
	}
	if strings.Contains(st.Message, "conversion webhook") {
		return noConversion
	}
	return "Check that the API server answers and is reachable from this process."
}

const noConversion = "The API server cannot reach the conversion webhook of the kind. Check the program that serves " +
	"it, and spec.conversion of the CustomResourceDefinition."

// exclusion is Store.Excludes for the options, the current selectors and the scopes of a store.
func exclusion(
	opt *Options, sel *watchSelector, statuses []source.Status, namespace string, labels map[string]string,
) (c why.Cause, excluded bool) {
	inside := slices.ContainsFunc(statuses, func(st source.Status) bool {
		return st.Namespace == "" || st.Namespace == namespace
	})
	c = why.Cause{Type: why.NotSelected, Evidence: map[string]string{
		"resource": opt.resource(),
		"labels":   klabels.Set(labels).String(),
	}}
	if l := opt.LabelSelector; l != "" {
		c.Evidence["selector"] = l
	}
	if f := opt.FieldSelector; f != "" {
		c.Evidence["fields"] = f
	}
	switch {
	case !inside && len(statuses) > 0: // only some users may list the names of namespaces
		c.Evidence["namespaces"] = strconv.Itoa(len(statuses))
		c.Message = fmt.Sprintf("the program does not watch %s in namespace %s, only in others (%d)", opt.resource(),
			namespace, len(statuses))
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

// unlisted is Store.Unlisted for a store that is not synced.
func unlisted(opt *Options, statuses []source.Status) []string {
	var out []string
	for _, st := range statuses {
		if st.Synced {
			continue
		}
		where := opt.resource()
		if st.Namespace != "" {
			where += " in " + st.Namespace
		}
		if with := opt.selectors(); with != "" {
			where += " with " + with
		}
		why := "not listed yet"
		if st.Phase == source.Degraded {
			why += ": " + string(st.Reason)
		}
		if st.Message != "" {
			why += ": " + st.Message
		}
		out = append(out, where+": "+why)
	}
	if len(out) == 0 {
		out = append(out, opt.resource()+": not listed yet")
	}
	slices.Sort(out)
	return out
}
