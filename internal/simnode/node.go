package simnode

import (
	"runtime"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node returns the node without its status.
func Node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName, Labels: map[string]string{
		corev1.LabelHostname: NodeName, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
	}}}
}

// SetNodeStatus makes a node ready, with room for all pods.
func SetNodeStatus(n *corev1.Node) {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("4Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"), corev1.ResourcePods: resource.MustParse("100000"),
	}
	n.Status.Capacity, n.Status.Allocatable = room, room
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: NodeIP}, {Type: corev1.NodeHostName, Address: NodeName},
	}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "pods are simulated",
		LastTransitionTime: n.CreationTimestamp, LastHeartbeatTime: n.CreationTimestamp,
	}}
}

// DefaultClass returns the default StorageClass.
func DefaultClass() *storagev1.StorageClass {
	reclaim, binding := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
	return &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: StorageClass, Annotations: map[string]string{IsDefaultClass: "true"}},
		Provisioner: Provisioner, ReclaimPolicy: &reclaim, VolumeBindingMode: &binding,
	}
}
