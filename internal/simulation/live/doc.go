// Package live plays schedules on a real control plane, in real time. The subject is a program in any language.
//
//   - live.go: Driver, which plays one schedule at a time. It wires the parts.
//   - plane.go: plane, a fresh control plane for one schedule. supply prepares one ahead. No plane is used twice, so
//     nothing of a schedule is left in the next one. It follows a kind that is defined later from its definition on.
//   - follower.go: follower knows all objects of a plane and reports their changes. It has a lock of its own.
//   - proxy.go: proxy is the API server of one process of the subject. No state but its connections.
//   - program.go: program starts and kills processes. output.go: output keeps the last lines they write.
//
// # Order
//
// The recorder of package schedule must know of a change before the subject sees it. Therefore a proxy passes on a
// frame of a watch, and the answer to a write, only when the follower has seen that resource version.
package live
