package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/admission/internal/authority"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/tree"
)

// label marks the configurations of a program. Its value is the name of the hooks.
const label = "fairlead.io/admission"

var (
	validating  = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
	mutating    = admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
	definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
)

// target is an object of the API server that contains addresses of hooks and the authorities that verify them.
type target struct {
	resource schema.GroupVersionResource
	kind     string
	name     string
	// want returns the wanted content as a tree, with the given bundle; nil means that the object must not exist.
	want func(bundle []byte) (map[string]any, error)
	// entries is the field with the list of hooks, in which no other hooks may be; empty for a conversion.
	entries string

	live    map[string]any // as last read; nil: the object does not exist
	version string
}

// targets returns the objects to maintain. It uses discovery to find the resources of the types.
func (h *Hooks) targets() ([]*target, error) {
	var checks, changes []map[string]any
	for _, k := range h.hooks {
		entry, err := h.entry(k)
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
		h.configuration(validating, "ValidatingWebhookConfiguration", checks),
		h.configuration(mutating, "MutatingWebhookConfiguration", changes),
	}
	for _, c := range h.converters {
		mapping, err := h.host.Client().Mapper().RESTMapping(c.kind, c.hub)
		if err != nil {
			return nil, c.fail(noMatch(err))
		}
		all = append(all, h.conversion(c, mapping.Resource.GroupResource().String()))
	}
	return all, nil
}

// entry returns one hook of a configuration, without its bundle.
func (h *Hooks) entry(k *hook) (map[string]any, error) {
	mapping, err := h.host.Client().Mapper().RESTMapping(k.kind.GroupKind(), k.kind.Version)
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
		Name: k.Name, ClientConfig: h.clientConfig(k.path()),
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: operations,
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{mapping.Resource.Group}, APIVersions: []string{mapping.Resource.Version},
				Resources: []string{resource}, Scope: &scope,
			},
		}},
		FailurePolicy: &policy, MatchPolicy: &match, SideEffects: &none, TimeoutSeconds: &seconds,
		NamespaceSelector: namespaces(h.o.Only, k.Namespaces,
			append([]string{metav1.NamespaceSystem, h.o.Namespace}, h.o.ExcludeNamespaces...)),
		ObjectSelector: objects, AdmissionReviewVersions: []string{"v1"},
		MatchConditions: slices.Concat(h.ownExcluded(mapping.Resource.GroupResource()), k.Conditions),
	}
	if k.mutating {
		again := admissionregistrationv1.NeverReinvocationPolicy
		if k.Reinvoke {
			again = admissionregistrationv1.IfNeededReinvocationPolicy
		}
		out.ReinvocationPolicy = &again
	}
	var entry any
	if entry, err = encoded(out); err != nil {
		return nil, err
	}
	return entry.(map[string]any), nil
}

// ownExcluded returns conditions that exclude objects that the hooks need and that have no namespace. The API server
// never calls hooks for webhook configurations.
func (h *Hooks) ownExcluded(resource schema.GroupResource) []admissionregistrationv1.MatchCondition {
	if resource != definitions.GroupResource() {
		return nil
	}
	var conditions []admissionregistrationv1.MatchCondition
	for _, c := range h.converters {
		if mapping, err := h.host.Client().Mapper().RESTMapping(c.kind, c.hub); err == nil {
			name := mapping.Resource.GroupResource().String()
			conditions = append(conditions, admissionregistrationv1.MatchCondition{
				Name: "fairlead.io/not-" + name, Expression: fmt.Sprintf("request.name != %q", name),
			})
		}
	}
	return conditions
}

func (h *Hooks) clientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	if h.o.URL != "" {
		at, _ := url.JoinPath(h.o.URL, path) // the URL has been parsed before
		return admissionregistrationv1.WebhookClientConfig{URL: &at}
	}
	port := h.o.ServicePort
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: h.o.Namespace, Name: h.o.Service, Path: &path, Port: &port,
	}}
}

// configuration returns the target for all hooks of one type. Without hooks the object must not exist.
func (h *Hooks) configuration(resource schema.GroupVersionResource, kind string, entries []map[string]any) *target {
	t := &target{resource: resource, kind: kind, name: h.o.Name, entries: "webhooks"}
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
			"metadata": map[string]any{"name": h.o.Name, "labels": map[string]any{label: h.o.Name}},
			"webhooks": list,
		}, nil
	}
	return t
}

// conversion returns the target for the conversion stanza of a CustomResourceDefinition.
func (h *Hooks) conversion(c *converter, name string) *target {
	t := &target{resource: definitions, kind: "CustomResourceDefinition", name: name}
	t.want = func(bundle []byte) (map[string]any, error) {
		at := h.clientConfig(c.path())
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

// read fetches the current object.
func (t *target) read(ctx context.Context, calls *call.Client) error {
	answer, err := call.Do(ctx, calls, call.Request{
		Verb: call.VerbGet, Resource: t.resource, Kind: t.kind, Name: t.name, NotFoundOK: true,
	}, call.Policy{})
	if t.live, t.version = nil, ""; err != nil || answer == nil {
		return err
	}
	var live any
	if err := decodeTree(answer.Raw, &live); err != nil {
		return fmt.Errorf("cannot read %s %s: %w", t.kind, t.name, err)
	}
	t.live, _ = live.(map[string]any)
	t.version, _ = tree.At(live, "metadata", "resourceVersion").(string)
	return nil
}

// trusted returns the authorities that the API server currently trusts, from all entries.
func (t *target) trusted() (s authority.Set) {
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				if text, ok := e.(string); ok && k == "caBundle" {
					var bundle []byte
					if json.Unmarshal([]byte(`"`+text+`"`), &bundle) == nil {
						for _, a := range authority.FromBundle(bundle) {
							s = s.With(a)
						}
					}
				}
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	if t.entries != "" {
		walk(t.live[t.entries])
	} else {
		walk(tree.At(t.live, "spec", "conversion"))
	}
	return s
}

// settled reports whether the current object has the wanted content.
func (t *target) settled(want map[string]any) bool {
	if t.live == nil {
		return want == nil
	}
	if want == nil {
		return tree.At(t.live, "metadata", "labels", label) == nil // another program owns it
	}
	if !tree.Contains(t.live, want) {
		return false
	}
	if t.entries == "" {
		return true
	}
	are, _ := t.live[t.entries].([]any)
	ought, _ := want[t.entries].([]any)
	for i := range ought {
		for _, narrows := range []string{"namespaceSelector", "objectSelector", "matchConditions"} {
			if !tree.Equal(tree.At(are[i], narrows), tree.At(ought[i], narrows)) { // more terms would narrow it
				return false
			}
		}
	}
	return true
}

// write changes the object to the wanted content. It fails with a conflict if the object has changed since read. It
// reports whether the write has changed the object.
func (t *target) write(
	ctx context.Context, calls *call.Client, want map[string]any, manager string,
) (changed bool, _ error) {
	request := call.Request{
		Resource: t.resource, Kind: t.kind, Name: t.name, ConflictsExpected: true, Verb: call.VerbApply,
		Query: url.Values{"fieldManager": {manager}, "force": {"true"}},
	}
	if want == nil {
		uid, _ := tree.At(t.live, "metadata", "uid").(string)
		body, err := json.Marshal(map[string]any{"preconditions": map[string]any{"uid": uid, "resourceVersion": t.version}})
		if err != nil {
			return false, err
		}
		request.Verb, request.Query, request.Body, request.NotFoundOK = call.VerbDelete, nil, body, true
		_, err = call.Do(ctx, calls, request, call.Policy{})
		return true, err
	}
	if left, err := t.leave(ctx, calls, want, manager); left || err != nil {
		return left, err
	}
	if t.version != "" {
		want["metadata"].(map[string]any)["resourceVersion"] = t.version
	}
	var err error
	if request.Body, err = json.Marshal(want); err != nil {
		return false, err
	}
	answer, err := call.Do(ctx, calls, request, call.Policy{})
	if err != nil {
		return false, err
	}
	var is metav1.PartialObjectMetadata
	err = json.Unmarshal(answer.Raw, &is)
	return is.ResourceVersion != t.version, err
}

func (t *target) String() string { return strings.TrimSpace(t.kind + " " + t.name) }
