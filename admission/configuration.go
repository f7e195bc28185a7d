package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/tree"
)

// label marks the configurations of a program. Its value is the name of the hooks.
const label = "fairlead.io/admission"

var (
	validating  = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
	mutating    = admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
	definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
)

// The kinds of the configurations.
const (
	validatingKind = "ValidatingWebhookConfiguration"
	mutatingKind   = "MutatingWebhookConfiguration"
)

func kindOfConfiguration(k *hook) string {
	if k.mutating {
		return mutatingKind
	}
	return validatingKind
}

// manifests builds the wanted content of the configurations and the conversions. It has no state.
type manifests struct {
	o          Options
	mapper     meta.RESTMapper
	hooks      []*hook
	converters []*converter
}

// targets returns the objects to maintain. It uses discovery to find the resources of the types.
func (m *manifests) targets() ([]*target, error) {
	var checks, changes []map[string]any
	for _, k := range m.hooks {
		entry, err := m.entry(k)
		if err != nil {
			return nil, k.fail(noMatch(err))
		}
		if k.mutating {
			changes = append(changes, entry)
		} else {
			checks = append(checks, entry)
		}
	}
	all := []*target{
		m.configuration(validating, validatingKind, checks),
		m.configuration(mutating, mutatingKind, changes),
	}
	for _, c := range m.converters {
		mapping, err := m.mapper.RESTMapping(c.kind, c.hub)
		if err != nil {
			return nil, c.fail(noMatch(err))
		}
		all = append(all, m.conversion(c, mapping.Resource.GroupResource().String()))
	}
	return all, nil
}

// entry returns one hook of a configuration, without its bundle.
func (m *manifests) entry(k *hook) (map[string]any, error) {
	mapping, err := m.mapper.RESTMapping(k.kind.GroupKind(), k.kind.Version)
	if err != nil {
		return nil, err
	}
	resource := mapping.Resource.Resource
	if k.Subresource != "" {
		resource += "/" + k.Subresource
	}
	policy := admissionregistrationv1.FailurePolicyType(k.OnFailure)
	match, none := admissionregistrationv1.Equivalent, admissionregistrationv1.SideEffectClassNone
	scope, seconds := admissionregistrationv1.AllScopes, int32(k.Timeout.Seconds())
	var operations []admissionregistrationv1.OperationType
	for _, o := range k.Operations {
		operations = append(operations, admissionregistrationv1.OperationType(o))
	}
	objects := k.Objects
	if objects == nil {
		objects = &metav1.LabelSelector{}
	}
	out := admissionregistrationv1.MutatingWebhook{
		Name: k.Name, ClientConfig: m.clientConfig(k.path()),
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: operations,
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{mapping.Resource.Group}, APIVersions: []string{mapping.Resource.Version},
				Resources: []string{resource}, Scope: &scope,
			},
		}},
		FailurePolicy: &policy, MatchPolicy: &match, SideEffects: &none, TimeoutSeconds: &seconds,
		NamespaceSelector: namespaces(m.o.Only, k.Namespaces,
			append([]string{metav1.NamespaceSystem, m.o.Namespace}, m.o.ExcludeNamespaces...)),
		ObjectSelector: objects, AdmissionReviewVersions: []string{"v1"},
		MatchConditions: slices.Concat(m.ownExcluded(mapping.Resource.GroupResource()), k.Conditions),
	}
	if k.mutating {
		reinvocation := admissionregistrationv1.NeverReinvocationPolicy
		if k.Reinvoke {
			reinvocation = admissionregistrationv1.IfNeededReinvocationPolicy
		}
		out.ReinvocationPolicy = &reinvocation
	}
	var entry any
	if entry, err = encoded(out); err != nil {
		return nil, err
	}
	return entry.(map[string]any), nil
}

// ownExcluded returns conditions that exclude objects that the hooks need and that have no namespace. The API server
// never calls hooks for webhook configurations.
func (m *manifests) ownExcluded(resource schema.GroupResource) []admissionregistrationv1.MatchCondition {
	if resource != definitions.GroupResource() {
		return nil
	}
	var conditions []admissionregistrationv1.MatchCondition
	for _, c := range m.converters {
		if mapping, err := m.mapper.RESTMapping(c.kind, c.hub); err == nil {
			name := mapping.Resource.GroupResource().String()
			conditions = append(conditions, admissionregistrationv1.MatchCondition{
				Name: "fairlead.io/not-" + name, Expression: fmt.Sprintf("request.name != %q", name),
			})
		}
	}
	return conditions
}

func (m *manifests) clientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	if m.o.URL != "" {
		at, _ := url.JoinPath(m.o.URL, path) // the URL has been parsed before
		return admissionregistrationv1.WebhookClientConfig{URL: &at}
	}
	port := m.o.ServicePort
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: m.o.Namespace, Name: m.o.Service, Path: &path, Port: &port,
	}}
}

// configuration returns the target for all hooks of one type. Without hooks the object must not exist.
func (m *manifests) configuration(resource schema.GroupVersionResource, kind string, entries []map[string]any) *target {
	t := &target{resource: resource, kind: kind, name: m.o.Name, entries: "webhooks"}
	if len(entries) == 0 {
		return t
	}
	t.want = func(bundle []byte) (map[string]any, error) {
		list := make([]any, len(entries))
		for i, e := range entries {
			own, err := withBundle(e, bundle, "clientConfig")
			if err != nil {
				return nil, err
			}
			list[i] = own
		}
		return map[string]any{
			"apiVersion": resource.GroupVersion().String(), "kind": kind,
			"metadata": map[string]any{"name": m.o.Name, "labels": map[string]any{label: m.o.Name}},
			"webhooks": list,
		}, nil
	}
	return t
}

// refusedEntry matches the field in which the API server has found a mistake.
var refusedEntry = regexp.MustCompile(`^webhooks\[(\d+)\]`)

// blame adds the hook to the error with which the API server has refused a configuration, such as that of a rule whose
// condition is no CEL expression.
func (m *manifests) blame(err error, refused map[string]any) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err
	}
	for _, cause := range status.Status().Details.Causes {
		at := refusedEntry.FindStringSubmatch(cause.Field)
		if at == nil {
			continue
		}
		i, _ := strconv.Atoi(at[1]) // one that does not fit is no index
		entries, _ := refused["webhooks"].([]any)
		if i >= len(entries) {
			continue
		}
		name := tree.At(entries[i], "name")
		for _, k := range m.hooks {
			if k.Name == name && refused["kind"] == kindOfConfiguration(k) {
				return k.fail(err)
			}
		}
	}
	return err
}

// conversion returns the target for the conversion stanza of a CustomResourceDefinition.
func (m *manifests) conversion(c *converter, name string) *target {
	t := &target{resource: definitions, kind: "CustomResourceDefinition", name: name}
	t.want = func(bundle []byte) (map[string]any, error) {
		at := m.clientConfig(c.path())
		stanza, err := encoded(apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: at.URL},
			},
		})
		if err != nil {
			return nil, err
		}
		if at.Service != nil {
			service, err := encoded(at.Service)
			if err != nil {
				return nil, err
			}
			tree.At(stanza, "webhook", "clientConfig").(map[string]any)["service"] = service
		}
		own, err := withBundle(stanza.(map[string]any), bundle, "webhook", "clientConfig")
		if err != nil {
			return nil, err
		}
		return map[string]any{
			"apiVersion": definitions.GroupVersion().String(), "kind": t.kind,
			"metadata": map[string]any{"name": name}, "spec": map[string]any{"conversion": own},
		}, nil
	}
	return t
}

// withBundle returns a copy with the bundle of a client configuration set.
func withBundle(in map[string]any, bundle []byte, path ...string) (map[string]any, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	var out any
	if err := decodeTree(raw, &out); err != nil {
		return nil, err
	}
	encodedBundle, err := encoded(bundle)
	if err != nil {
		return nil, err
	}
	tree.At(out, path...).(map[string]any)["caBundle"] = encodedBundle
	return out.(map[string]any), nil
}
