// Package worker plays schedules in child processes of the test binary, so that a schedule that panics, exits or hangs
// ends only itself.
//
//   - pool.go: Pool, which starts the children and gives them schedules. It owns them.
//   - serve.go: Serve, the loop of a child.
//   - explain.go: what the user can do about a failure that is known. No state.
package worker
