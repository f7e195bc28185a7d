package executor

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
)

// Events records Kubernetes Events, in the background and best effort: they are aggregated, bounded, and dropped rather
// than waited for. It is a [Recorder]. Close it after use.
type Events struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

// NewEvents returns a recorder that writes to the API server of the configuration.
func NewEvents(config *rest.Config) (*Events, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make an event recorder: %w", err)
	}
	b := record.NewBroadcaster()
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	return &Events{b, b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "fairlead"})}, nil
}

// Operation implements Recorder.
func (e *Events) Operation(op *v1alpha1.Operation, warning bool, reason, message string) {
	severity := corev1.EventTypeNormal
	if warning {
		severity = corev1.EventTypeWarning
	}
	e.recorder.Event(&corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindOperation, Namespace: op.Namespace, Name: op.Name,
		UID: op.UID, ResourceVersion: op.ResourceVersion,
	}, severity, reason, message)
}

// Close ends the recording; what is not written by then is dropped.
func (e *Events) Close() { e.broadcaster.Shutdown() }
