package project

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/rights"
)

// WebhookOptions configures NewWebhook. Group and Kind are required.
type WebhookOptions struct {
	// Dir is the directory of the project. Default: the current one.
	Dir string
	// Group and Kind name a kind of the project.
	Group, Kind string
	// Defaulting and Validating select the functions. Default: both.
	Defaulting, Validating bool
}

// NewWebhook adds webhooks for a kind to a project: their functions with a test, and, with the first ones, the server,
// its Service and its port. After an error, the project is unchanged.
func NewWebhook(o WebhookOptions) (*Made, error) {
	p, err := open(o.Dir)
	if err != nil {
		return nil, err
	}
	k, err := p.find(o.Group, o.Kind)
	if err != nil {
		return nil, err
	}
	if !o.Defaulting && !o.Validating {
		o.Defaulting, o.Validating = true, true
	}
	n := k.names
	n.Defaulting, n.Validating = o.Defaulting, o.Validating
	if err := p.render(n, "kind", n.Kind, "webhook"); err != nil {
		return nil, err
	}
	if err := serveWebhooks(p, n, fmt.Sprintf("declare%sWebhooks(rt, h)", n.Kind)); err != nil {
		return nil, err
	}
	return p.save()
}

// webhooksFile has the server of all webhooks.
const webhooksFile = "controller/all_webhooks.go"

// serveWebhooks adds a declaration to the server of the webhooks. It adds the server if there is none.
func serveWebhooks(p *existing, n names, line string) error {
	if !p.exists(webhooksFile) {
		if err := p.render(n, "kind", n.Kind, "webhooks"); err != nil {
			return err
		}
		for _, err := range []error{
			p.add("main.go", "webhooks", "controller.ServeWebhooks(rt, inCluster)"),
			p.add("controller/all_controllers_test.go", "webhooks", "ServeWebhooks(rt, true)"),
			p.add("deploy/deployment.yaml", "ports", "- {name: webhooks, containerPort: 9443}"),
			p.add("deploy/kustomization.yaml", "manifests", "- webhook.yaml"),
		} {
			if err != nil {
				return err
			}
		}
		grant(p, webhookRights(n)...)
	}
	return p.add(webhooksFile, "webhooks", line)
}

// webhookRights returns the rights of the server of the webhooks, as admission.Hooks.Rights does.
func webhookRights(n names) []rights.Right {
	secrets := schema.GroupVersionKind{Version: "v1", Kind: "secrets"} // see role
	all := []rights.Right{
		{Kind: secrets, Namespace: n.Name + "-system", Verbs: []string{"create"}},
		{
			Kind: secrets, Namespace: n.Name + "-system", Verbs: []string{"get", "update"},
			Names: []string{n.Name + "-webhook-ca"},
		},
	}
	for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		all = append(all, rights.Right{
			Kind:  schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: resource},
			Verbs: []string{"create", "delete", "get", "patch"}, Names: []string{n.Name},
		})
	}
	return all
}

// conversionRights returns the rights to serve the conversion of a kind, as admission.Hooks.Rights does.
func conversionRights(n names) []rights.Right {
	own := rights.Right{
		Kind: schema.GroupVersionKind{
			Group: "apiextensions.k8s.io", Version: "v1", Kind: "customresourcedefinitions",
		},
		Verbs: []string{"get", "list", "patch", "watch"}, Names: []string{n.Plural + "." + n.Group},
	}
	return []rights.Right{own, {Kind: own.Kind, Subresource: "status", Verbs: []string{"patch"}, Names: own.Names}}
}
