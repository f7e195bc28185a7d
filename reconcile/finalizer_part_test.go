package reconcile

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

// TestFinalizerPart: the finalizer is added once, and not during a deletion. Its removal succeeds if the object or the
// finalizer is already gone.
func TestFinalizerPart(t *testing.T) {
	t.Parallel()
	const name = "example.com/gateways"
	refused := errors.New("refused")
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "web")
	invalid := apierrors.NewInvalid(schema.GroupKind{}, "web", nil)
	with := func(finalizers ...string) *testbed.Gateway {
		g := testbed.New("a", "web")
		g.UID, g.Finalizers = "1", finalizers
		return g
	}
	deleting := with("other")
	deleting.DeletionTimestamp = &metav1.Time{}
	for _, tc := range []struct {
		reason  string
		obj     *testbed.Gateway
		remove  bool
		live    *testbed.Gateway // for reads; nil if the object does not exist
		err     error            // of the write
		want    []string         // the finalizers after the write
		gone    bool
		wantErr error
	}{
		{reason: "add", obj: with("other"), want: []string{"other", name}},
		{reason: "add twice", obj: with(name), want: []string{name}},
		{reason: "being deleted", obj: deleting, want: []string{"other"}, gone: true},
		{reason: "deleted", obj: with(), err: notFound, gone: true},
		{reason: "replaced", obj: with(), err: client.ErrReplaced, gone: true},
		{reason: "add is refused", obj: with(), err: refused, wantErr: refused},
		{reason: "remove", obj: with("other", name), remove: true, want: []string{"other"}},
		{reason: "remove twice", obj: with("other"), remove: true, want: []string{"other"}},
		{reason: "removed object", obj: with(name), remove: true, err: notFound},
		{reason: "removal is refused", obj: with(name), remove: true, err: refused, wantErr: refused},
		{reason: "removed by another client", obj: with(name), remove: true, err: invalid, live: with()},
		{reason: "deleted in the meantime", obj: with(name), remove: true, err: invalid},
		{reason: "invalid object", obj: with(name), remove: true, err: invalid, live: with(name), wantErr: invalid},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			f := &finalizer{
				name: name,
				change: func(_ context.Context, _ *client.Client, obj client.Object, fn func(client.Object) error) error {
					if tc.err != nil {
						return tc.err
					}
					return fn(obj)
				},
				read: func(context.Context, *client.Client, Key) (client.Object, error) {
					if tc.live == nil {
						return &testbed.Gateway{}, notFound
					}
					return tc.live, nil
				},
			}
			var gone bool
			var err error
			if tc.remove {
				err = f.remove(t.Context(), nil, tc.obj)
			} else {
				gone, err = f.add(t.Context(), nil, tc.obj)
			}
			if gone != tc.gone || !errors.Is(err, tc.wantErr) {
				t.Errorf("got %v and %v, want %v and %v", gone, err, tc.gone, tc.wantErr)
			}
			if tc.want != nil && !slices.Equal(tc.obj.Finalizers, tc.want) {
				t.Errorf("the finalizers are %q, want %q", tc.obj.Finalizers, tc.want)
			}
		})
	}
}
