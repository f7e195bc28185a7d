package call

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/why"
)

// Why classifies the failure of a request for the diagnosis of a blocked operation. The types are a missing permission,
// a refusal by admission, a conflict with another writer, a request to retry later, or a plain failure. The cause names
// the object (About) if it is known, and has no times. Why returns false if err is not from a request to an API server.
func Why(err error) (why.Cause, bool) {
	e, ok := errors.AsType[*Error](err)
	var answer apierrors.APIStatus
	answered := errors.As(err, &answer)
	if !ok && !answered {
		return why.Cause{}, false
	}
	if !ok {
		e = &Error{}
	}
	var s metav1.Status
	if answered {
		s = answer.Status()
	}
	c := why.Cause{Type: why.BackOff, Message: err.Error(), Evidence: map[string]string{"error": err.Error()}}
	put(c.Evidence, "verb", string(e.Verb), "subresource", e.Subresource, "namespace", e.Namespace, "name", e.Name)
	if e.Kind != "" {
		c.About = &why.Object{Group: e.Group, Kind: e.Kind, Namespace: e.Namespace, Name: e.Name}
	}
	if answered {
		put(c.Evidence, "status", strconv.Itoa(int(s.Code)), "reason", string(s.Reason))
	}
	if d := s.Details; d != nil {
		put(c.Evidence, "resource", strings.TrimSuffix(d.Kind+"."+d.Group, "."), "name", d.Name)
	}
	if n := len(e.Tries); n > 1 {
		c.Evidence["tries"] = strconv.Itoa(n)
	}
	judge(&c, e, &s)
	return c, true
}

// put adds the pairs whose value is not empty.
func put(evidence map[string]string, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			evidence[pairs[i]] = pairs[i+1]
		}
	}
}

// judge classifies the server's answer. It checks the message before the code, because an admission webhook may use any
// code.
func judge(c *why.Cause, e *Error, s *metav1.Status) {
	_, delayed := apierrors.SuggestsClientDelay(&apierrors.StatusError{ErrStatus: *s})
	switch right := lacking.FindStringSubmatch(s.Message); {
	case right != nil:
		c.Type = why.Forbidden
		missing(c, right[1:])
	case refuse(c, s.Message), s.Code == http.StatusForbidden:
		c.Type = why.Forbidden
		c.Message = fmt.Sprintf("%s refuses to %s %s: %s", orString(c.Evidence["refusedBy"], "the API server"),
			orString(e.operation(), "write"), strings.TrimSpace(e.Kind+" "+e.object()), s.Message)
	case s.Code == http.StatusConflict:
		c.Type = why.Conflict
		c.Message = fmt.Sprintf("another writer changes %s: %s", strings.TrimSpace(e.Kind+" "+e.object()), s.Message)
		c.Advice = "Find the other writer: kubectl get -o yaml --show-managed-fields shows which manager has set which " +
			"field, and when."
		if s.Reason == metav1.StatusReasonAlreadyExists {
			c.Advice = "The object exists already. Adopt it, choose another name, or delete it."
		}
	case s.Code == http.StatusTooManyRequests || delayed:
		c.Type = why.RetryAfter
		c.Message = "the API server asks the client to retry later: " + s.Message
		if d := s.Details; d != nil && d.RetryAfterSeconds > 0 {
			c.Evidence["retryAfter"] = fmt.Sprintf("%ds", d.RetryAfterSeconds)
		}
	case unreached.MatchString(s.Message):
		c.Evidence["webhook"] = unreached.FindStringSubmatch(s.Message)[1]
		c.Advice = "The API server cannot reach a mandatory admission webhook. Check the program " +
			"that serves it, or ask its owner to change failurePolicy."
	case unconverted.MatchString(s.Message):
		c.Evidence["webhook"] = unconverted.FindStringSubmatch(s.Message)[1]
		c.Advice = "The API server cannot reach the conversion webhook of the kind. Check the program that serves it, " +
			"and spec.conversion of the CustomResourceDefinition."
	case strings.Contains(s.Message, "etcdserver: leader changed"),
		strings.Contains(s.Message, "etcdserver: request timed out"),
		strings.Contains(s.Message, "etcdserver: no leader"):
		c.Advice = "etcd is slow or elects a leader. If this lasts, check its members, disks and network."
	case strings.Contains(s.Message, "database space exceeded"):
		c.Advice = "etcd has no space left and rejects writes. Compact and defragment it, or raise its quota, and disarm " +
			"its NOSPACE alarm."
	case s.Code == http.StatusRequestEntityTooLarge, strings.Contains(s.Message, "request is too large"):
		c.Advice = "The object is too large to be stored. Make it smaller, or split it into several objects."
	case s.Reason == metav1.StatusReasonNotFound && s.Details != nil && s.Details.Name != "":
		c.Advice = fmt.Sprintf("%s %s does not exist. Create it, or correct the reference to it.", s.Details.Kind,
			s.Details.Name)
	case s.Code == http.StatusNotFound:
		c.Advice = "The API server does not serve this kind. Install its CustomResourceDefinition."
	case s.Code == http.StatusUnauthorized:
		c.Advice = "The API server does not authenticate this program. Check its kubeconfig, or the token of its service " +
			"account."
	case s.Code == http.StatusUnprocessableEntity:
		c.Advice = "The API server rejects the object as invalid. Correct the object or the schema."
	case s.Code >= http.StatusInternalServerError:
		c.Advice = "The API server failed, or a proxy in front of it. Check their logs."
	case s.Code == 0:
		c.Advice = "The API server did not answer. Check that it is reachable from this process."
	}
}

// lacking matches the message of an authoriser that denies access to a resource.
var lacking = regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "([^"]*)"` +
	`(?: in the namespace "([^"]*)")?`)

// unreached matches the message about an admission webhook that cannot be called.
var unreached = regexp.MustCompile(`failed calling webhook "([^"]*)"`)

// unconverted matches the message about a failed conversion webhook.
var unconverted = regexp.MustCompile(`conversion webhook for (.+?) failed`)

// missing describes the missing permission: user, verb, resource, group, namespace.
func missing(c *why.Cause, right []string) {
	user, verb, resource, group, namespace := right[0], right[1], right[2], right[3], right[4]
	name, subresource, _ := strings.Cut(resource, "/")
	where := "in the whole cluster"
	role := "a ClusterRole"
	if namespace != "" {
		where, role = "in namespace "+namespace, "a Role in namespace "+namespace
	}
	rule := fmt.Sprintf(`{apiGroups: [%q], resources: [%q], verbs: [%q]}`, group, resource, verb)
	delete(c.Evidence, "subresource")
	put(c.Evidence, "verb", verb, "resource", strings.TrimSuffix(name+"."+group, "."), "subresource", subresource,
		"namespace", namespace, "user", user, "rule", rule)
	what := name
	if subresource != "" {
		what = subresource + " of " + name
	}
	c.Message = fmt.Sprintf("%s may not %s %s %s", user, verb, what, where)
	c.Advice = fmt.Sprintf("Add the rule %s to %s that is bound to %s.", rule, role, user)
}

// ResourceQuota is the prefix of the evidence "refusedBy" for a refusal by a quota. A space and the name of the quota
// follow.
const ResourceQuota = "ResourceQuota"

// refusals are the messages of admission plug-ins that refuse a request.
var refusals = []struct {
	words  *regexp.Regexp
	who    string // format with the submatch of words
	advice string
}{
	{
		regexp.MustCompile(`admission webhook "([^"]*)" denied the request`), "admission webhook %s",
		"Change the object so that the webhook admits it, or ask the owner of the webhook.",
	},
	{
		regexp.MustCompile(`ValidatingAdmissionPolicy '([^']*)'.* denied request`), "ValidatingAdmissionPolicy %s",
		"Change the object so that the policy admits it, or ask the owner of the policy.",
	},
	{
		regexp.MustCompile(`exceeded quota: ([^,\s]*)`), ResourceQuota + " %s",
		"Delete unneeded objects in the namespace, or raise the quota.",
	},
	{
		regexp.MustCompile(`status unknown for quota: ([^,\s]*)`), ResourceQuota + " %s",
		"The controller manager has not computed the usage of the quota yet. Wait, or check that it is running.",
	},
	{
		regexp.MustCompile(`failed quota: ([^:,\s]*)`), ResourceQuota + " %s",
		"The quota requires requests or limits. Set them, or let a LimitRange set them.",
	},
	{
		regexp.MustCompile(`violates PodSecurity "([^"]*)"`), "PodSecurity %s",
		"Set the security context that the namespace enforces, or change the label of the namespace.",
	},
	{
		regexp.MustCompile(`(?:maximum|minimum) (?:cpu|memory|storage|\S+) usage per (\S+) is`), "LimitRange (per %s)",
		"Change the requests or limits, or the LimitRange of the namespace.",
	},
	{
		regexp.MustCompile(`in namespace (\S+) because it is being terminated`), "namespace %s, which is being terminated,",
		"Nothing can be created in it. Wait until it is gone, or use another namespace.",
	},
}

// refuse records the admission plug-in that refused the request. It reports whether there is one.
func refuse(c *why.Cause, message string) bool {
	for _, r := range refusals {
		if m := r.words.FindStringSubmatch(message); m != nil {
			c.Evidence["refusedBy"], c.Advice = strings.Trim(fmt.Sprintf(r.who, m[1]), ","), r.advice
			return true
		}
	}
	return false
}
