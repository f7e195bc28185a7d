package fairlead_test

import (
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/shard"
)

// A program that shares objects by namespace lists the namespaces of a gained slot. No other program lists namespaces.
func TestRightToNamespaces(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		opts []fairlead.Option
		want bool
	}{
		"alone":        {nil, false},
		"by uid":       {[]fairlead.Option{fairlead.WithShards("a", "b", fairlead.ShardBy(shard.UID))}, false},
		"by namespace": {[]fairlead.Option{fairlead.WithShards("a", "b")}, true},
	} {
		all := fairlead.New(&rest.Config{}, tc.opts...).Rights()
		if got := slices.ContainsFunc(all, func(r rights.Right) bool {
			return r.Kind.Kind == "Namespace" && slices.Equal(r.Verbs, []string{"list"})
		}); got != tc.want {
			t.Errorf("%s: %+v", name, all)
		}
	}
}
