// Package install installs the custom resource definitions of fairlead.io in a cluster.
package install

import (
	"context"
	"fmt"
	"net/url"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

const (
	fieldManager = "fairlead"
	pollInterval = 50 * time.Millisecond
)

// CRDs applies the custom resource definitions and returns once the API server serves all of them. It uses server-side
// apply as field manager fairlead and takes over conflicting fields of other managers. It is idempotent and updates
// older versions.
func CRDs(ctx context.Context, calls *call.Client) error {
	crds := v1alpha1.CRDs()
	for _, crd := range crds {
		if err := apply(ctx, calls, crd); err != nil {
			return fmt.Errorf("cannot install %s: %w", crd.Name, err)
		}
	}
	for _, crd := range crds {
		if err := established(ctx, calls, crd.Name); err != nil {
			return fmt.Errorf("cannot install %s: %w", crd.Name, err)
		}
	}
	return nil
}

var definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

func apply(ctx context.Context, calls *call.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	_, err := call.Do(ctx, calls, call.Request{
		Verb: call.VerbApply, Resource: definitions, Kind: "CustomResourceDefinition", Name: crd.Name, Object: crd,
		Query: url.Values{"fieldManager": {fieldManager}, "force": {"true"}},
	}, call.Policy{})
	return err
}

// established polls until the API server serves a resource. That takes a moment at most, so a watch is not worthwhile.
func established(ctx context.Context, calls *call.Client, name string) error {
	for {
		answer, err := call.Do(ctx, calls, call.Request{
			Verb: call.VerbGet, Resource: definitions, Kind: "CustomResourceDefinition", Name: name,
		}, call.Policy{})
		if err != nil {
			return err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := answer.Into(&crd); err != nil {
			return err
		}
		for _, c := range crd.Status.Conditions {
			switch {
			case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
				return nil
			case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
				return fmt.Errorf("the names are taken: %s", c.Message)
			}
		}
		if err := backoff.Pause(ctx, pollInterval); err != nil {
			return fmt.Errorf("it is not served: %w", err)
		}
	}
}
