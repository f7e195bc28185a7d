// Package simnode computes what a node, its kubelet and a volume provisioner report about pods and claims that no
// container and no disk stand for. It is used by cluster/kubelet and by the controllers of package simulate, so that
// both show the same states. All functions are pure.
//
//   - status.go: the status of a pod, from the pod and the time.
//   - claims.go: the volume of a claim.
//   - node.go: the node and the default StorageClass.
package simnode

const (
	// NodeName is the name of the only node.
	NodeName = "local"

	// StorageClass is the default StorageClass.
	StorageClass = "standard"

	// Provisioner is the name of its provisioner.
	Provisioner = "kubelet.fairlead.io"

	// ExitCode and RunFor are annotations of pods, which package kubelet describes.
	ExitCode = "kubelet.fairlead.io/exit-code"
	RunFor   = "kubelet.fairlead.io/run-for"
)
