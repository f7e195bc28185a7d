package causes

import (
	"regexp"
	"strings"

	"github.com/fairlead-io/fairlead/why"
)

// refused matches the message of an API server for a request without permission.
var refused = regexp.MustCompile(
	`User "([^"]*)" cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]*)")?`)

// ForbiddenText returns the missing permission from the text of an API server error. It returns false for other errors.
func ForbiddenText(text string) (why.Cause, bool) {
	said := refused.FindStringSubmatch(strings.ReplaceAll(text, `\"`, `"`))
	if said == nil {
		return why.Cause{}, false
	}
	user, verb, resource, group, namespace := said[1], said[2], said[3], said[4], said[5]
	rule := `{apiGroups: ["` + group + `"], resources: ["` + resource + `"], verbs: ["` + verb + `"]}`
	c := why.Cause{
		Type: why.Forbidden, Message: user + " may not " + verb + " " + resource,
		Evidence: map[string]string{"user": user, "verb": verb, "resource": resource, "group": group, "rule": rule},
		Advice:   "Give the controller the RBAC rule " + rule + ", as deploy/ does.",
	}
	if namespace != "" {
		c.Message += " in namespace " + namespace
		c.Evidence["namespace"] = namespace
	}
	return c, true
}
