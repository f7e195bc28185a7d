package bug

import (
	"context"

	"sigs.k8s.io/cluster-api/controllers"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

func setup(ctx context.Context, mgr ctrl.Manager) error {
	r := &controllers.MachineDeploymentReconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader()}
	return r.SetupWithManager(ctx, mgr, controller.Options{})
}
