package apiserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// discovery answers the paths that name no resource.
func (x *exchange) discovery() error {
	if x.r.Method != http.MethodGet {
		return errNoPage
	}
	switch path := strings.Trim(x.req.Path, "/"); path {
	case "healthz", "livez", "readyz":
		x.out.whole(http.StatusOK, "text/plain; charset=utf-8", []byte("ok"))
		return nil
	case "version":
		return x.answerJSON(version.Info{
			Major: "1", Minor: "37", GitVersion: "v1.37.0", GoVersion: "go", Compiler: "gc",
			Platform: "test",
		})
	case "api":
		return x.answerJSON(metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: x.s.addr}},
		})
	case "apis":
		return x.answerJSON(metav1.APIGroupList{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: x.groups(),
		})
	default:
		parts := strings.Split(path, "/")
		switch {
		case len(parts) == 2 && parts[0] == "api":
			return x.answerResources("", parts[1])
		case len(parts) == 3 && parts[0] == "apis":
			return x.answerResources(parts[1], parts[2])
		case len(parts) == 2 && parts[0] == "apis":
			for _, g := range x.groups() {
				if g.Name == parts[1] {
					g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
					return x.answerJSON(g)
				}
			}
		}
	}
	return errNoPage
}

func (x *exchange) answerJSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	x.out.whole(http.StatusOK, typeJSON, b)
	return nil
}

// groups lists the named groups. The first version in the order of names is the preferred one, or the newest one if a
// group has definitions.
func (x *exchange) groups() []metav1.APIGroup {
	var out []metav1.APIGroup
	custom := x.s.store.customGroups()
	for _, r := range x.s.store.served() {
		if r.Group == "" {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: r.apiVersion(), Version: r.Version}
		i := slices.IndexFunc(out, func(g metav1.APIGroup) bool { return g.Name == r.Group })
		if i < 0 {
			i = len(out)
			out = append(out, metav1.APIGroup{Name: r.Group, PreferredVersion: v})
		}
		if !slices.Contains(out[i].Versions, v) {
			out[i].Versions = append(out[i].Versions, v)
		}
		if custom[r.Group] {
			slices.SortFunc(out[i].Versions, func(a, b metav1.GroupVersionForDiscovery) int {
				return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
			})
			out[i].PreferredVersion = out[i].Versions[0]
		}
	}
	return out
}

func (x *exchange) answerResources(group, version string) error {
	list := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: strings.TrimPrefix(group+"/"+version, "/"),
	}
	verbs := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	for _, r := range x.s.store.served() {
		if r.Group != group || r.Version != version {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: r.Resource, SingularName: r.singular(),
			Namespaced: r.Namespaced, Kind: r.Kind, Verbs: verbs, ShortNames: r.ShortNames,
			Categories: r.categories,
		})
		for _, sub := range r.Subresources {
			sr := metav1.APIResource{
				Name: r.Resource + "/" + sub, Namespaced: r.Namespaced, Kind: r.Kind,
				Verbs: metav1.Verbs{"get", "patch", "update"},
			}
			switch sub {
			case "scale":
				sr.Kind, sr.Group, sr.Version = "Scale", "autoscaling", "v1"
			case "binding":
				sr.Kind, sr.Verbs = "Binding", metav1.Verbs{"create"}
			case "token":
				sr.Kind, sr.Group, sr.Version, sr.Verbs = "TokenRequest", "authentication.k8s.io", "v1", metav1.Verbs{"create"}
			}
			list.APIResources = append(list.APIResources, sr)
		}
	}
	if len(list.APIResources) == 0 {
		return errNoPage
	}
	return x.answerJSON(list)
}
