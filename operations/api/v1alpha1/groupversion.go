package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// group is the API group of the kinds in this package.
const group = "fairlead.io"

// Kinds and resources, for clients that work with unstructured objects.
const (
	KindOperation = "Operation"
	KindWebhook   = "Webhook"
)

var (
	// GroupVersion is the group and version of the kinds in this package.
	GroupVersion = schema.GroupVersion{Group: group, Version: "v1alpha1"}

	// OperationsResource names the resource of Operation objects.
	OperationsResource = GroupVersion.WithResource("operations")

	// WebhooksResource names the resource of Webhook objects.
	WebhooksResource = GroupVersion.WithResource("webhooks")
)

// AddToScheme makes the kinds of this package known to s. It may be called more than once.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Operation{}, &OperationList{}, &Webhook{}, &WebhookList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
