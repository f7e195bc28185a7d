// Package crd lets the server of package apiserver serve CustomResourceDefinitions: those given to New from the start,
// and those that clients create.
//
//	definitions, err := crd.New(manifest) // the content of a file in config/crd/bases
//	server, err := apiserver.New(apiserver.Options{CRDs: definitions})
//
// Schemas are pruned, defaulted and validated by the packages of the real server, CEL rules included. Definitions can
// be shared by any number of servers, one after the other or side by side. A schema is compiled once, so the next
// server with it starts at once.
//
// This is a package of its own because it links CEL and much of the real server.
package crd
