// Package protobuf decodes Kubernetes objects from protobuf into their Go types.
//
// The types have generated decoders, which allocate each string and pointer separately and grow each list step by step.
// A pod of 3.3 KB takes 230 allocations. This package builds a table from the field tags of a type and decodes with it.
// Strings share memory, lists are allocated at their final length, and recently decoded quantities are not parsed
// again.
//
// The result is always that of the generated decoder. Types with special decoders (times, quantities, raw extensions)
// use them. A type that the table cannot express, and every message that is not well-formed, goes to the type's own
// decoder, whose result counts.
package protobuf
