// Package cluster builds, starts and stops a real control plane, kube-apiserver and etcd, on the local machine for
// development and tests. It downloads no binaries: the servers are Go modules, which the go command builds once into a
// cache directory.
//
//	c, err := cluster.Start(ctx, cluster.Options{Dir: ".fairlead"})
//	if err != nil {
//		return err
//	}
//	defer c.Stop()
//	clientset, err := kubernetes.NewForConfig(c.Config())
//
// The first Start on a machine takes some minutes (see [Build] and [Options.Progress]), later ones about two seconds.
// With an empty Dir the control plane is temporary: its files are in a new directory, which Stop removes, and it does
// not wait for the disk. With a Dir it is persistent: the next Start keeps objects, credentials, the certificate
// authority and, if it is still free, the port. An exported KUBECONFIG therefore stays valid.
//
// A Cluster can also inject faults to test its clients: [Cluster.KillAPIServer], [Cluster.PauseAPIServer],
// [Cluster.PauseEtcd], [Cluster.Compact], [Cluster.Snapshot] and [Cluster.Restore], [Cluster.RotateServingCertificate].
//
// By default the control plane has no controllers and no nodes: it does not collect dependents of a deleted owner,
// empty a namespace under deletion, or run pods. [Options.ControllerManager] adds a real kube-controller-manager, and
// [Options.Kubelet] simulates a node. With both, a Deployment becomes available and a Job completes.
//
// # Invariants
//
//   - A directory is used by one Cluster at a time, across all processes; a second Start fails with [ErrInUse].
//   - The servers end with the process that started them, however it ends. On Linux the kernel ensures this, on other
//     systems a guard process.
//   - The servers are reachable from the local machine only: kube-apiserver and kube-controller-manager on the loopback
//     interface, etcd on a unix socket that only its owner can open.
//   - Only the owner can read files with credentials.
//   - Stop takes less than ten seconds, whatever the servers do.
//
// The package needs Linux, macOS or another Unix, and a go command on PATH for the first build.
package cluster
