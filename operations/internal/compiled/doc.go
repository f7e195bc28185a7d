// Package compiled caches the compiled Webhooks of a store, ready for calls.
//
// Webhooks contain code of tenants, and a compiled Webhook takes many times the memory of its text. Therefore each
// namespace compiles one Webhook at a time, in the background: [Cache.Get] returns [ErrCompiling] and wakes the caller
// later. Webhooks that would take too much memory are refused (weight.go). The memory of cached Webhooks and of
// Webhooks in use ([Cache.Pin]) is bounded over all namespaces.
package compiled
