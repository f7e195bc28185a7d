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

// label marks the configurations of a program, with the name of its hooks.
const label = "fairlead.io/admission"

var (
	validating  = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
	mutating    = admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
	definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
)

// target is one object of the API server that says where hooks are and by which authorities they are known.
type target struct {
	resource schema.GroupVersionResource
	kind     string
	name     string
	// webhooks returns what is to be in it, as a tree, for a bundle; nil: the object is not to be there.
	want func(bundle []byte) (map[string]any, error)
	// entries is where the list of hooks is that has no others; empty for a conversion.
	entries string

	live    map[string]any // as read last; nil: it is not there
	version string
}

// targets returns what is to be written. It asks the API server which resources the types are.
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

// entry returns one hook of a configuration, but for its bundle.
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

// ownExcluded are the conditions by which what the hooks themselves need is not asked about, where no namespace has it.
// The API server asks nobody about webhook configurations.
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
		at, _ := url.JoinPath(h.o.URL, path) // it was parsed before
		return admissionregistrationv1.WebhookClientConfig{URL: &at}
	}
	port := h.o.ServicePort
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: h.o.Namespace, Name: h.o.Service, Path: &path, Port: &port,
	}}
}

// configuration is that of all hooks of one sort. Without any it is not to be there.
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

// conversion is the stanza of a CustomResourceDefinition.
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

// withBundle returns a copy with the bundle of a client configuration.
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

// read fetches what there is.
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

// trusted returns the authorities by which the API server knows the hooks now, of all entries.
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

// settled says whether what is there is what is wanted.
func (t *target) settled(want map[string]any) bool {
	if t.live == nil {
		return want == nil
	}
	if want == nil {
		return tree.At(t.live, "metadata", "labels", label) == nil // it is somebody else's
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
			if !tree.Equal(tree.At(are[i], narrows), tree.At(ought[i], narrows)) { // what is more there would narrow it
				return false
			}
		}
	}
	return true
}

// write has what is there become what is wanted: nothing is written over that has changed since it was read. It says
// whether that has changed anything.
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
