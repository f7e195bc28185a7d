package overlay

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
)

// place is the resource, object or subresource that the URL of a request names.
type place struct {
	resource schema.GroupVersionResource
	key      cache.Key // without a name: the collection; Namespace is empty for cluster-scoped resources
	sub      string
}

// placeOf parses a URL of a server as the API server does. It returns false for another server, for a path without a
// resource, and for a connection to an object such as exec in a pod.
func placeOf(server, u *url.URL) (place, bool) {
	path, ok := below(server, u)
	if !ok {
		return place{}, false
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i := range parts {
		var err error
		if parts[i], err = url.PathUnescape(parts[i]); err != nil || parts[i] == "" {
			return place{}, false
		}
	}
	var p place
	switch {
	case parts[0] == "api" && len(parts) > 2:
		p.resource.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		p.resource.Group, p.resource.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return place{}, false
	}
	if parts[0] == "watch" || parts[0] == "proxy" { // deprecated paths
		return place{}, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 && !(len(parts) == 3 && ofNamespaces[parts[2]]) {
		p.key.Namespace, parts = parts[1], parts[2:]
	}
	p.resource.Resource = parts[0]
	if len(parts) > 1 {
		p.key.Name = parts[1]
	}
	if len(parts) > 2 {
		p.sub = parts[2]
	}
	return p, len(parts) <= 3 && !connects[p.sub]
}

// ofNamespaces are the subresources of namespaces. Any other segment after the name of a namespace is a resource in it.
var ofNamespaces = map[string]bool{"status": true, "finalize": true}

// connects are the subresources that are streams instead of objects.
var connects = map[string]bool{"attach": true, "exec": true, "log": true, "portforward": true, "proxy": true}

// below reports whether a URL belongs to a server, and returns the escaped path below the path of the server. The
// default port of a scheme may be omitted.
func below(server, u *url.URL) (path string, ok bool) {
	if server == nil || u == nil || u.Scheme != server.Scheme || port(u) != port(server) ||
		!strings.EqualFold(u.Hostname(), server.Hostname()) {
		return "", false
	}
	path, ok = strings.CutPrefix(u.EscapedPath(), strings.TrimSuffix(server.EscapedPath(), "/"))
	return path, ok && strings.HasPrefix(path, "/")
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
