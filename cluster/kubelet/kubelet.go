package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/simnode"
	"github.com/fairlead-io/fairlead/reconcile"
)

const (
	// NodeName is the name of the only node.
	NodeName = simnode.NodeName

	// StorageClass is the default StorageClass.
	StorageClass = simnode.StorageClass

	// ExitCode is an annotation of pods: the exit code of their containers, 0 to 255. Without it, the containers of a pod
	// that is always restarted run forever, and others exit with 0.
	ExitCode = simnode.ExitCode

	// RunFor is an annotation of pods: how long their containers run until they exit, such as "10s". Default: 0.
	RunFor = simnode.RunFor
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
	node := simnode.Node()
	if err := c.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := c.Live().Get(ctx, client.KeyOf(node), node); err != nil {
		return err
	}
	err := client.ModifyStatus(ctx, c, node, func(n *corev1.Node) error {
		simnode.SetNodeStatus(n)
		return nil
	})
	if err != nil {
		return err
	}
	// The API server adds this taint to a new node. The node lifecycle controller, which does not run, would remove it.
	err = client.Modify(ctx, c, node, func(n *corev1.Node) error {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints,
			func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
		return nil
	})
	if err != nil {
		return err
	}
	err = c.Create(ctx, simnode.DefaultClass())
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
