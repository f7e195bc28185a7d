package main

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
)

// Domain is an admin server and a number of managed servers, each in a pod.
type Domain struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              DomainSpec   `json:"spec"`
	Status            DomainStatus `json:"status,omitempty"`
}

// DomainSpec is the desired state of a Domain.
type DomainSpec struct {
	Servers        int    `json:"servers"` // number of managed servers
	Image          string `json:"image"`
	RestartVersion string `json:"restartVersion,omitempty"` // a change restarts all servers, one at a time
}

// DomainStatus is the observed state of a Domain.
type DomainStatus struct {
	Phase              string         `json:"phase,omitempty"` // Starting, Rolling, Available
	ObservedGeneration int64          `json:"observedGeneration,omitempty"`
	Flow               *flow.Position `json:"flow,omitempty"` // position of the fiber, or that it has completed
}

// Phases of a domain.
const (
	phaseStarting  = "Starting"
	phaseRolling   = "Rolling"
	phaseAvailable = "Available"
)

// DeepCopyObject implements runtime.Object.
func (d *Domain) DeepCopyObject() runtime.Object {
	out := &Domain{TypeMeta: d.TypeMeta, Spec: d.Spec, Status: d.Status}
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Flow = d.Status.Flow.DeepCopy()
	return out
}

// DomainList is a list of domains.
type DomainList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Domain `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *DomainList) DeepCopyObject() runtime.Object {
	out := &DomainList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Domain))
	}
	return out
}

var group = schema.GroupVersion{Group: "example.fairlead.io", Version: "v1"}

// newScheme returns the scheme of the operator.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	s.AddKnownTypes(group, &Domain{}, &DomainList{})
	metav1.AddToGroupVersion(s, group)
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		return nil, err
	}
	return s, scheme.AddToScheme(s)
}

//go:embed domains.yaml
var definition []byte

// install applies the custom resource definition and waits until the API server serves it.
func install(ctx context.Context, c *client.Client) error {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(definition, &crd); err != nil {
		return err
	}
	if err := c.Apply(ctx, &crd, client.Force()); err != nil {
		return fmt.Errorf("cannot install: %w", err)
	}
	for {
		if err := c.Live().Get(ctx, client.KeyOf(&crd), &crd); err != nil {
			return fmt.Errorf("cannot install: %w", err)
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type != apiextensionsv1.Established || condition.Status != apiextensionsv1.ConditionTrue {
				continue
			}
			// Discovery shows the resource with a short delay.
			if _, err := c.Mapper().RESTMapping(group.WithKind("Domain").GroupKind(), group.Version); err == nil ||
				!meta.IsNoMatchError(err) {
				return err
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("cannot install: %s is not served: %w", crd.Name, context.Cause(ctx))
		}
	}
}
