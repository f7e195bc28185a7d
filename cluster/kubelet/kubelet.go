package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/reconcile"
)

const (
	// NodeName is the name of the only node.
	NodeName = "local"

	// StorageClass is the default StorageClass, and provisioner the name of its provisioner.
	StorageClass = "standard"
	provisioner  = "kubelet.fairlead.io"

	// ExitCode is an annotation of pods: the exit code of their containers, 0 to 255. Without it, the containers of a pod
	// that is always restarted run forever, and others exit with 0.
	ExitCode = "kubelet.fairlead.io/exit-code"

	// RunFor is an annotation of pods: how long their containers run until they exit, such as "10s". Default: 0.
	RunFor = "kubelet.fairlead.io/run-for"
)

// Options configure Run. The zero value is ready for use.
type Options struct {
	// Logger receives failures and the state of the watches. Default: none.
	Logger *slog.Logger
	// Ready is called when the node is registered. From then on a restart of the API server does not end Run.
	Ready func()
}

// Run simulates until ctx ends. It returns nil then, or an error if it cannot start.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	rt := fairlead.New(cfg, fairlead.WithFieldOwner("kubelet"), fairlead.WithLogger(o.Logger))
	c := rt.Client()
	rt.Add("node", func(ctx context.Context) error {
		if err := register(ctx, c); err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot register the node: %w", err)
		}
		if o.Ready != nil {
			o.Ready()
		}
		<-ctx.Done()
		return nil
	})
	reconcile.New[corev1.Pod](rt, "pods", &pods{c})
	reconcile.New[corev1.PersistentVolumeClaim](rt, "claims", &claims{c},
		reconcile.Watches(func(pv *corev1.PersistentVolume) []reconcile.Key { return claimOf(pv) }))
	reconcile.New[corev1.PersistentVolume](rt, "volumes", &volumes{c},
		reconcile.Watches(func(claim *corev1.PersistentVolumeClaim) []reconcile.Key { return volumeOf(claim) }))
	return rt.Run(ctx)
}

// register creates the node and the default StorageClass. It leaves those that exist as they are, except for the status
// of the node.
func register(ctx context.Context, c *client.Client) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName, Labels: map[string]string{
		corev1.LabelHostname: NodeName, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	}}}
	if err := c.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := c.Live().Get(ctx, client.KeyOf(node), node); err != nil {
		return err
	}
	err := client.ModifyStatus(ctx, c, node, func(n *corev1.Node) error {
		room := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("4Ti"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"), corev1.ResourcePods: resource.MustParse("100000"),
		}
		n.Status.Capacity, n.Status.Allocatable = room, room
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: nodeIP}, {Type: corev1.NodeHostName, Address: NodeName},
		}
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "pods are simulated",
			LastTransitionTime: n.CreationTimestamp, LastHeartbeatTime: n.CreationTimestamp,
		}}
		return nil
	})
	if err != nil {
		return err
	}
	// The API server adds this taint to a new node. The node lifecycle controller, which does not run, would remove it.
	err = client.Modify(ctx, c, node, func(n *corev1.Node) error {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
		return nil
	})
	if err != nil {
		return err
	}
	reclaim, binding := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
	err = c.Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: StorageClass, Annotations: map[string]string{
			"storageclass.kubernetes.io/is-default-class": "true",
		}},
		Provisioner: provisioner, ReclaimPolicy: &reclaim, VolumeBindingMode: &binding,
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
