// Package compiled keeps the Webhooks of a store compiled, ready for calls.
//
// Compiling is code of tenants, and what is compiled takes many times the memory of its text. So each namespace
// compiles one Webhook at a time, apart from who asks ([Cache.Get] returns [ErrCompiling] and wakes), what is too heavy
// is refused (weight.go), and both what is kept and what calls use ([Cache.Pin]) are bounded over all namespaces.
package compiled
