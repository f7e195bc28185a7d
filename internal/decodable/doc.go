// Package decodable reports whether a JSON object can be decoded into a Go type, without decoding it. The check takes a
// fraction of the time and does not allocate. A caller can then decode the object later, or never.
//
// The check errs on one side only. If it accepts an object, sigs.k8s.io/json decodes the object without an error. If it
// rejects an object, decoding may still succeed: for types with their own decoder, unusually large numbers and other
// rare cases. The caller then has to decode the object to know.
//
// Reading order: plan.go (what a type accepts), check.go (the bytes), scalar.go.
package decodable
