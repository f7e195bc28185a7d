package controller

import "testing"

func TestSystemNamespace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		served []string
		flag   string
		want   string
	}{
		"All":       {"Where all are served it is that of the pod.", nil, "", "own"},
		"One":       {"Where one is, it is that one.", []string{"a"}, "", "a"},
		"Twice":     {"One that is said twice is one.", []string{"a", "a"}, "", "a"},
		"Several":   {"One of several tenants does not have the key of the others.", []string{"a", "b"}, "", "own"},
		"OwnServed": {"Unless there is no other one.", []string{"a", "own"}, "", "a"},
		"Said":      {"What is said counts.", []string{"a", "b"}, "sys", "sys"},
		"SaidOne":   {"Also one that is served.", []string{"a", "b"}, "b", "b"},
	} {
		o := Options{namespaces: tc.served, systemNamespace: tc.flag}
		if err := o.placeSystem("own"); err != nil || o.systemNamespace != tc.want {
			t.Errorf("%s: %s got %q, %v", name, tc.reason, o.systemNamespace, err)
		}
	}
}
