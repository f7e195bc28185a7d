package bug

import (
	"sigs.k8s.io/agent-sandbox/controllers"
	extensions "sigs.k8s.io/agent-sandbox/extensions/controllers"
	ctrl "sigs.k8s.io/controller-runtime"
)

func record(ctrl.Manager, *controllers.SandboxReconciler, *extensions.SandboxWarmPoolReconciler) {}
