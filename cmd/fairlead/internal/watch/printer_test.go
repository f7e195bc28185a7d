package watch

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// TestPrinterSlots: objects that leave with a slot are shown by name only. Objects that come with a slot are initial,
// even after SYNCED.
func TestPrinterSlots(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		output string
		want   []string
	}{
		{"json", []string{
			`{"type":"ADDED","initial":true,"key":"a/x","uid":"u1","resourceVersion":"5","object":{OBJECT}}`,
			`{"type":"SYNCED","resourceVersion":"10","count":1}`,
			`{"type":"LEFT","key":"a/x","uid":"u1","resourceVersion":"5"}`,
			`{"type":"ADDED","initial":true,"key":"a/x","uid":"u1","resourceVersion":"5","object":{OBJECT}}`,
		}},
		{"name", []string{"configmaps/a/x", "configmaps/a/x"}},
	} {
		s := store.New(store.Options{Namespaced: true, Shard: "namespace/1"})
		t.Cleanup(s.Close)
		all := shard.Layout{Slots: 1}.All()
		sink := s.Sink("")
		raw := `{"metadata":{"namespace":"a","name":"x","uid":"u1","resourceVersion":"5"}}`
		list := func() {
			sink.(source.Sharded).Hold(all)
			r := sink.Replace()
			o := source.Object{Raw: []byte(raw)}
			if err := source.Scan(source.JSON, o.Raw, &o.Header); err != nil {
				t.Fatal(err)
			}
			if err := r.Put(&o); err != nil {
				t.Fatal(err)
			}
			r.Commit(source.Commit{Version: "10"})
		}
		var out bytes.Buffer
		gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		p := newPrinter(cli.Streams{Out: &out, Err: &out}, tc.output, resource{gvr: gvr, namespaced: true}, false, nil)
		c := s.Subscribe(store.SubscribeOptions{})
		for _, step := range []func(){list, func() { sink.(source.Sharded).Hold(all.Minus(all)) }, list} {
			step()
			for events := c.Take(9); len(events) > 0; events = c.Take(9) {
				if err := p.print(events); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := strings.Split(strings.TrimSpace(strings.ReplaceAll(out.String(), raw, "{OBJECT}")), "\n")
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("-o %s (-want +got):\n%s", tc.output, diff)
		}
		if p.count != 1 {
			t.Errorf("%d objects are counted", p.count)
		}
	}
}
