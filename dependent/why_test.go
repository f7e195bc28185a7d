package dependent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhyOfBlockedNodes: the cause for a node that comes after others names the node with the reason, that reason and
// its advice.
func TestWhyOfBlockedNodes(t *testing.T) {
	for _, tc := range []struct {
		reason string
		child  func(context.Context, *gateway) (*corev1.ConfigMap, error)
		about  string
		want   map[string]string // by node
		advice string
	}{
		{
			"a child is not ready", page, "ConfigMap/a/web-page",
			map[string]string{
				"second": "second waits for first: child ConfigMap a/web-page: it is not ready",
				"third":  "third waits for second and other, and second for first: child ConfigMap a/web-page: it is not ready",
			},
			"Ask `why` about that child.",
		},
		{
			"a function fails", func(context.Context, *gateway) (*corev1.ConfigMap, error) { return nil, errors.New("ouch") },
			"",
			map[string]string{
				"second": "second waits for first: ", "third": "third waits for second and other, and second for first: ",
			},
			"",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				g := dependent.For[gateway]()
				child := func(name string) func(context.Context, *gateway) (*corev1.ConfigMap, error) {
					return func(context.Context, *gateway) (*corev1.ConfigMap, error) { return configMap(name, nil), nil }
				}
				first := dependent.Add(g, "first", tc.child, dependent.Ready(isOpen))
				second := dependent.Add(g, "second", child("second"), dependent.After(first))
				other := dependent.Add(g, "other", child("other"), dependent.After(first))
				dependent.Add(g, "third", child("third"), dependent.After(second, other))
				b.run(g)
				causes := b.c.Why(t.Context(), why.Object{
					Group: testbed.GroupVersion.Group, Kind: "Gateway", Namespace: web.Namespace, Name: web.Name,
				})
				found := map[string]why.Cause{}
				for _, c := range causes {
					found[c.Evidence["node"]] = c
				}
				advice := map[string]string{
					"second": "It continues once first is ready. ", "third": "It continues once second and other are ready. ",
				}
				for node, want := range tc.want {
					c, about := found[node], ""
					if c.About != nil {
						about = c.About.String()
					}
					if c.Type != why.Parked || !strings.HasPrefix(c.Message, want) || tc.about != about ||
						!strings.HasPrefix(c.Advice+" ", advice[node]+tc.advice) {
						t.Errorf("%s: %+v about %q", node, c, about)
					}
				}
			})
		})
	}
}
