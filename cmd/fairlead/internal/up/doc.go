// Package up is the command fairlead up: a control plane with operations controllers and other programs beside it.
//
//   - up.go: the command, and the control plane.
//   - options.go: the flags, and the hints for the user.
//   - all.go: the controllers and the programs of --with, until one of them ends.
//   - replicas.go: controllers in processes of their own that are restarted. A mutex guards their common output.
//   - programs.go: one program beside the control plane, and the command after --. No state.
//   - words.go: splits the command line of --with. No state.
package up
