// Package crdtest tests the schemas of operations/api/v1alpha1 with the code that an API server runs on them:
// acceptance of the definition with its limits on the cost of rules, then for each object pruning, defaulting, schema,
// list and rule validation.
//
// It is a module of its own because that code needs the modules of the API server, which no user of the library should
// carry.
package crdtest
