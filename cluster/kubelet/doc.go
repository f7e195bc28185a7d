// Package kubelet is a stand-in for the scheduler, the kubelet and a volume provisioner, for a control plane without
// nodes. No container runs, but to all clients of the API server it looks as if it did:
//
//   - Each pod without a node is bound to the node [NodeName], which always has room: requests, selectors and
//     affinities are not evaluated. A pod with scheduling gates waits, and so does one whose claims are missing or not
//     bound.
//   - A pod whose ConfigMaps and Secrets exist becomes Running, and Ready once its readiness gates hold. Probes
//     are not run.
//   - A pod that is deleted ends at once.
//   - The pods of Jobs succeed at once. The annotations [ExitCode] and [RunFor] of a pod change that.
//   - A PersistentVolumeClaim gets a volume if its StorageClass exists. The default class is [StorageClass].
//
// Not simulated are DaemonSets' taints, active deadlines, resizing, ephemeral containers, logs and exec.
//
// Run is used by cluster.Options.Kubelet and fairlead up --kubelet. It works on any API server, and in a bubble of
// testing/synctest.
//
//   - kubelet.go: Run, and the node. No state.
//   - pods.go: schedules, runs and ends pods.
//   - claims.go: volumes for claims.
//
// Package internal/simnode computes the states; package simulate uses it, too.
package kubelet
