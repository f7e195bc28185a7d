// Package e2e_test runs the program on a real control plane.
package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	squadsv1 "github.com/fairlead-io/fairlead/examples/controller-runtime/api/v1"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

var (
	env      clustertest.Env
	operator program.Program
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	goleak.VerifyTestMain(operator.Main(env.Main(m)))
}

// The operator makes no pod too many, and no status tells another number than the reconciler has just made: its reads
// include its own writes, whether the watch or the reconciler is quicker.
func TestSquads(t *testing.T) {
	cfg, namespace := env.Config(t), env.Namespace(t)
	env.InstallCRDs(t, clustertest.CRDFiles("../config/crd"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	operator.Start(t, program.Options{Config: cfg, Args: []string{
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
	}})

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), squadsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	live, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	const squads = 5
	for i := range squads {
		squad := &squadsv1.Squad{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("squad", i), Namespace: namespace},
			Spec:       squadsv1.SquadSpec{Size: 1, Image: "example.com/image"},
		}
		if err := live.Create(ctx, squad); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int32{1, 6, 2, 9, 0} {
		for i := range squads {
			squad := &squadsv1.Squad{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("squad", i), Namespace: namespace}}
			patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"size":%d}}`, size))
			if err := live.Patch(ctx, squad, patch); err != nil {
				t.Fatal(err)
			}
		}
		await(ctx, t, live, namespace, squads, size)
		var pods corev1.PodList
		if err := live.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		if got, want := len(pods.Items), squads*int(size); got != want {
			t.Fatalf("%d squads of %d have %d pods, want %d", squads, size, got, want)
		}
	}
}

// await returns when all squads have told of their newest generation.
func await(ctx context.Context, t *testing.T, live client.WithWatch, namespace string, squads int, size int32) {
	t.Helper()
	watch, err := live.Watch(ctx, &squadsv1.SquadList{}, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	done := map[string]bool{}
	for event := range watch.ResultChan() {
		squad, ok := event.Object.(*squadsv1.Squad)
		if !ok {
			t.Fatalf("the watch ended with: %v", event.Object)
		}
		done[squad.Name] = squad.Status.ObservedGeneration == squad.Generation
		if done[squad.Name] && squad.Status.Members != size {
			t.Fatalf("%s tells of %d members when the reconciler has just seen to it that they are %d",
				squad.Name, squad.Status.Members, size)
		}
		if len(done) == squads && !slices.Contains(slices.Collect(maps.Values(done)), false) {
			return
		}
	}
	t.Fatalf("the watch ended before %d squads have %d members: %v", squads, size, done)
}
