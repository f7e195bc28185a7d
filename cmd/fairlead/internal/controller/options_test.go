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
		"All":       {"All namespaces: that of the pod.", nil, "", "own"},
		"One":       {"One namespace: that namespace.", []string{"a"}, "", "a"},
		"Twice":     {"A repeated name is one namespace.", []string{"a", "a"}, "", "a"},
		"Several":   {"No tenant may have the key of the others.", []string{"a", "b"}, "", "own"},
		"OwnServed": {"The namespace of the pod is served, too: the first one.", []string{"a", "own"}, "", "a"},
		"Said":      {"The flag counts.", []string{"a", "b"}, "sys", "sys"},
		"SaidOne":   {"Also if it names a served namespace.", []string{"a", "b"}, "b", "b"},
	} {
		if got, err := placeSystem(tc.flag, tc.served, "own"); err != nil || got != tc.want {
			t.Errorf("%s: %s got %q, %v", name, tc.reason, got, err)
		}
	}
}
