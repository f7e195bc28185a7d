// Package decodable tells from the bytes of a JSON object whether it can be decoded into a Go type, without decoding
// it: in a part of the time and without an allocation. Who has been told so can decode later, or never.
//
// It errs on one side only. What it calls decodable, sigs.k8s.io/json decodes without an error. What it does not may be
// decodable all the same: a type that decodes itself in a way of its own, a number that is unusually large, whatever is
// rare. Such an object has to be decoded to know.
//
// Reading order: plan.go (what a type takes), check.go (what the bytes have), scalar.go.
package decodable
