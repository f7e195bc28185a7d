package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/testbed/command"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/shard"
)

// lost reports whether a watch has printed since line n that it holds fewer than so many slots, or that an object has
// left.
func (w *watching) lost(n, slots int) bool {
	for _, l := range w.All[n:] {
		if l.Type == "LEFT" || l.Type == "SHARD" && len(l.Slots) < slots {
			return true
		}
	}
	return false
}

// TestEditedGroup checks with real processes that members keep their slots and go on while the Lease of their group is
// deleted, and while it is edited. A member that joins then gains slots as soon as the others share again.
func TestEditedGroup(t *testing.T) {
	t.Parallel()
	config, namespace := env.Config(t), env.Namespace(t)
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	maps, leases := clients.CoreV1().ConfigMaps(namespace), clients.CoordinationV1().Leases(namespace)
	args := []string{
		"configmaps", "-n", namespace, "--kubeconfig", program.Kubeconfig(t, config, ""),
		"--shard-group", namespace + "/maps", "--shard-by", "uid", "--shard-slots", "16",
	}
	first := startWatching(t, args...)
	first.holds(16)
	first.Synced()
	second := startWatching(t, args...)
	theirs := second.holds(8).Slots
	second.Synced()
	first.holds(8)
	before := []int{len(first.All), len(second.All)}
	layout := shard.Layout{By: shard.UID, Slots: 16}
	for round, harm := range []func() error{
		func() error { return leases.Delete(t.Context(), "maps", metav1.DeleteOptions{}) },
		func() error {
			_, err := leases.Patch(t.Context(), "maps", types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{"fairlead.io/shard-record":"{}"}}}`), metav1.PatchOptions{})
			return err
		},
	} {
		was, err := leases.Get(t.Context(), "maps", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		begun, longest := time.Now(), time.Duration(0)
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		for i := 0; time.Since(begun) < 20*time.Second; i++ {
			o, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("m%d-%d", round, i),
			}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			holder := first
			if slices.Contains(theirs, layout.SlotOf("", o.UID)) {
				holder = second
			}
			created := time.Now()
			holder.Event("ADDED", namespace+"/"+o.Name)
			longest = max(longest, time.Since(created))
			<-time.After(time.Second)
		}
		if t.Logf("Each object was shown within %v.", longest); longest > 5*time.Second {
			t.Error("The work has stopped.")
		}
		if now, err := leases.Get(t.Context(), "maps", metav1.GetOptions{}); err != nil || now.UID == was.UID {
			t.Errorf("The group was not created again: %v.", err)
		}
	}
	for i, w := range []*watching{first, second} {
		if w.lost(before[i], 8) {
			t.Errorf("A member lost slots: %+v, %s.", w.All[before[i]:], w.Errs)
		}
	}
	third := startWatching(t, args...)
	third.holds(5)
	first.Await("fewer slots", func(l command.Line) bool { return l.Type == "SHARD" && len(l.Slots) < 8 })
}
