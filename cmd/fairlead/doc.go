// Command fairlead runs a control plane for development, and the controllers and tools of Fairlead on any cluster.
//
// Package main adds the commands to each other (root.go) and adapts them to kubectl (plugin.go). It has the two
// commands that need no package: crds.go and new.go, whose work package internal/project does. Each other command has a
// package below internal: controller, up, watch, op, and explain for why, flows and shards. All share internal/cli.
// Only up imports another command: it runs the controller.
//
// The tests here run the program by its arguments, against servers of the test. e2e has those with a control plane.
package main
