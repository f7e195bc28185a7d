package admission

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/fairlead-io/fairlead/rights"
)

// Rights says what the hooks that were declared so far ask of the API server, besides what the functions do: it makes
// them a rights.Asker, so that Runtime.Rights has it. Of the Secret the right to create one can be left out where there
// is one, empty perhaps, before the program starts; RBAC knows no names for it. What a type that is converted is called,
// the API server is asked for; one that it does not know, which Run tells, is left out.
func (h *Hooks) Rights() []rights.Right {
	if h == nil || h.host == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	secret := rights.Right{Kind: corev1.SchemeGroupVersion.WithKind("Secret"), Namespace: h.o.Namespace}
	create, own := secret, secret
	create.Verbs = []string{"create"}
	own.Verbs, own.Names = []string{"get", "update"}, []string{h.o.Secret}
	all := []rights.Right{create, own}
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		all = append(all, rights.Right{
			Kind:  admissionregistrationv1.SchemeGroupVersion.WithKind(kind),
			Verbs: []string{"create", "delete", "get", "patch"}, Names: []string{h.o.Name},
		})
	}
	for _, c := range h.converters {
		if mapping, err := h.host.Client().Mapper().RESTMapping(c.kind, c.hub); err == nil {
			own := rights.Right{
				Kind:  apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"),
				Verbs: []string{"get", "list", "patch", "watch"}, Names: []string{mapping.Resource.GroupResource().String()},
			}
			status := rights.Right{Kind: own.Kind, Subresource: "status", Verbs: []string{"patch"}, Names: own.Names}
			all = append(all, own, status, rights.Events())
		}
	}
	return all
}
