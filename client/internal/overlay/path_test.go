package overlay

import (
	"net/url"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlaceOf(t *testing.T) {
	t.Parallel()
	const server = "https://host/clusters/a"
	for _, tc := range []struct {
		url, group, version, resource, namespace, name, sub string
		ok                                                  bool
	}{
		{server + "/api/v1/namespaces/n/pods", "", "v1", "pods", "n", "", "", true},
		{server + "/api/v1/namespaces/n/pods/p", "", "v1", "pods", "n", "p", "", true},
		{server + "/api/v1/namespaces/n/pods/p/status", "", "v1", "pods", "n", "p", "status", true},
		{server + "/api/v1/namespaces/n/pods/p/exec", "", "v1", "pods", "n", "p", "exec", false},
		{server + "/apis/apps/v1/namespaces/n/deployments/d", "apps", "v1", "deployments", "n", "d", "", true},
		{server + "/api/v1/nodes/x", "", "v1", "nodes", "", "x", "", true},
		{server + "/api/v1/namespaces/n", "", "v1", "namespaces", "", "n", "", true},
		{server + "/api/v1/namespaces/n/finalize", "", "v1", "namespaces", "", "n", "finalize", true},
		{
			server + "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab", "rbac.authorization.k8s.io", "v1", "clusterroles",
			"", "a:b", "", true,
		},
		{"https://host:443/clusters/a/api/v1/nodes/x", "", "v1", "nodes", "", "x", "", true},
		{"https://other/clusters/a/api/v1/nodes/x", "", "", "", "", "", "", false},
		{"http://host/clusters/a/api/v1/nodes/x", "", "", "", "", "", "", false},
		{"https://host/clusters/ab/api/v1/nodes/x", "", "", "", "", "", "", false},
		{server + "/version", "", "", "", "", "", "", false},
		{server + "/api/v1/watch/pods", "", "v1", "", "", "", "", false},
	} {
		base, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(tc.url)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := placeOf(base, u)
		if ok != tc.ok {
			t.Errorf("%s: ok is %v", tc.url, ok)
		}
		var want place
		want.resource.Group, want.resource.Version, want.resource.Resource = tc.group, tc.version, tc.resource
		want.key, want.sub = cache.Key{Namespace: tc.namespace, Name: tc.name}, tc.sub
		if ok && p != want {
			t.Errorf("%s: got %+v, want %+v", tc.url, p, want)
		}
	}
}
