// Package protobuf decodes Kubernetes objects from protobuf into their Go types.
//
// The types bring a decoder of their own, which allocates each string and pointer by itself and grows each list step by
// step: a pod of 3.3 KB takes 230 allocations. This one reads the field tags of a type once, and then decodes with a
// table: strings share pieces of memory, lists are allocated at their final length, and quantities that were seen a
// moment ago are not parsed again.
//
// It is only a faster way to the same result. Types that decode themselves in a way of their own (times, quantities,
// raw extensions) are asked to, a type that the table cannot express is decoded by its own method, and so is every
// message that is not well-formed: what that says counts.
package protobuf
