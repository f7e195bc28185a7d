package admission

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/fairlead-io/fairlead/rights"
)

// Rights returns the permissions that the declared hooks need, without those of their functions. Runtime.Rights
// includes them. The permission to create Secrets may be omitted if the Secret exists, possibly empty, before the
// program starts; RBAC cannot restrict it to a name. Rights uses discovery to find the resource of a converted type. It
// omits types that the API server does not know; Run reports those.
func (h *Hooks) Rights() []rights.Right {
	if h == nil || h.host == nil {
		return nil
	}
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
	_, converters := h.declared.all()
	for _, c := range converters {
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
