package bug

import (
	"sigs.k8s.io/agent-sandbox/controllers"
	extensions "sigs.k8s.io/agent-sandbox/extensions/controllers"
	ctrl "sigs.k8s.io/controller-runtime"
)

func record(mgr ctrl.Manager, s *controllers.SandboxReconciler, p *extensions.SandboxWarmPoolReconciler) {
	s.Recorder, p.Recorder = mgr.GetEventRecorder("sandboxes"), mgr.GetEventRecorder("pools")
}
