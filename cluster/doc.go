// Package cluster builds, starts and stops a real control plane: kube-apiserver and etcd, on this machine, for
// development and for tests. Nothing is downloaded as a binary; both servers are Go modules and are built once, by the
// go command, into a cache directory.
//
//	c, err := cluster.Start(ctx, cluster.Options{Dir: ".fairlead"})
//	if err != nil {
//		return err
//	}
//	defer c.Stop()
//	clientset, err := kubernetes.NewForConfig(c.Config())
//
// The first Start on a machine takes some minutes (see [Build] and [Options.Progress]), every other about two seconds.
// With an empty Dir the control plane is temporary: it keeps its files in a fresh directory, does not wait for the
// disk, and leaves nothing behind. With a Dir it is persistent: objects, credentials, certificate authority and, if it
// is still free, the port are those of the previous Start, so that an exported KUBECONFIG stays valid.
//
// A Cluster can also break itself, for tests of what clients do then: [Cluster.KillAPIServer], [Cluster.PauseAPIServer], [Cluster.PauseEtcd],
// [Cluster.Compact], [Cluster.Snapshot] and [Cluster.Restore], [Cluster.RotateServingCertificate].
//
// There is no controller manager, no scheduler and no kubelet: nothing collects dependents of a deleted owner, empties
// a namespace that is being deleted, or runs a pod.
//
// # Invariants
//
//   - A directory is used by one Cluster at a time, over all processes; a second Start fails with [ErrInUse].
//   - The servers end with the process that started them, however it ends (on Linux the kernel sees to it, on other
//     systems a guard process).
//   - Everything listens on the loopback interface only, etcd on a unix socket that nobody else may open.
//   - Files with credentials can be read by their owner only.
//   - Stop takes less than ten seconds, whatever the servers do.
//
// The package needs Linux, macOS or another Unix, and a go command on PATH for the first build.
package cluster
