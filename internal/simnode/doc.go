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

	// ExitCode is the annotation for the exit code of a pod's containers.
	ExitCode = "kubelet.fairlead.io/exit-code"

	// RunFor is the annotation for the time until they exit.
	RunFor = "kubelet.fairlead.io/run-for"
)
