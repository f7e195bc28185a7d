package watch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/abandon"
	"github.com/fairlead-io/fairlead/internal/discover"
)

// resource is the resource for a name on the command line.
type resource struct {
	gvr        schema.GroupVersionResource
	kind       string // empty if not looked up
	namespaced bool
}

// clusterScoped are the cluster-scoped resources of Kubernetes. Full names are not looked up, so this avoids the need
// for -A.
var clusterScoped = map[schema.GroupResource]bool{
	{Resource: "nodes"}: true, {Resource: "namespaces"}: true, {Resource: "persistentvolumes"}: true,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:                         true,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}:                  true,
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}:                 true,
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:                             true,
	{Group: "storage.k8s.io", Resource: "storageclasses"}:                                  true,
	{Group: "storage.k8s.io", Resource: "volumeattachments"}:                               true,
	{Group: "storage.k8s.io", Resource: "csidrivers"}:                                      true,
	{Group: "storage.k8s.io", Resource: "csinodes"}:                                        true,
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"}:                              true,
	{Group: "node.k8s.io", Resource: "runtimeclasses"}:                                     true,
	{Group: "networking.k8s.io", Resource: "ingressclasses"}:                               true,
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:                 true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}:   true,
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}:     true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}:       true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}: true,
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"}:         true,
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"}:   true,
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"}:                       true,
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"}:       true,
	{Group: "networking.k8s.io", Resource: "ipaddresses"}:                                  true,
	{Group: "networking.k8s.io", Resource: "servicecidrs"}:                                 true,
	{Group: "resource.k8s.io", Resource: "deviceclasses"}:                                  true,
	{Group: "resource.k8s.io", Resource: "resourceslices"}:                                 true,
	{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}:                         true,
}

// discoveryTimeout bounds the discovery of a name.
const discoveryTimeout = 15 * time.Second

// findResource returns the resource of a name. It discovers the name unless that has version and group.
func findResource(ctx context.Context, config *rest.Config, name string) (r resource, err error) {
	if name == "" || strings.ContainsAny(name, "/ \t") {
		return resource{}, cli.Usagef("%q is not the name of a resource: write pods, or deployments.v1.apps", name)
	}
	full, partial := schema.ParseResourceArg(strings.ToLower(name))
	if full != nil && isVersion(full.Version) {
		return resource{gvr: *full, namespaced: !clusterScoped[full.GroupResource()]}, nil
	}
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	config = rest.CopyConfig(config)
	config.Timeout = discoveryTimeout
	config.Wrap(abandon.With(ctx))
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return resource{}, fmt.Errorf("cannot look up %q: %w", name, err)
	}
	if _, err := d.ServerVersion(); err != nil {
		return resource{}, fmt.Errorf("cannot look up %q: the API server at %s does not answer: %w", name, config.Host,
			err)
	}
	mapper, err := discover.NewMapper(config, nil, nil)
	if err != nil {
		return resource{}, fmt.Errorf("cannot look up %q: %w", name, err)
	}
	mapper = restmapper.NewShortcutExpander(mapper, d, nil)
	gvk, err := mapper.KindFor(partial.WithVersion(""))
	var mapping *meta.RESTMapping
	if err == nil {
		mapping, err = mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	switch {
	case meta.IsNoMatchError(err):
		return resource{}, cli.Usagef("the API server has no resource %q", name)
	case err != nil:
		return resource{}, fmt.Errorf("cannot look up %q: %w", name, err)
	}
	return resource{gvr: mapping.Resource, kind: gvk.Kind, namespaced: mapping.Scope.Name() == "namespace"}, nil
}

// isVersion distinguishes deployments.v1.apps from operations.fairlead.io.
func isVersion(s string) bool {
	return len(s) > 1 && s[0] == 'v' && s[1] >= '0' && s[1] <= '9'
}
