// Package signature signs and verifies messages by Standard Webhooks 1.0.0 (standardwebhooks.com). The content
// "<id>.<timestamp>.<body>" is signed with HMAC-SHA256 (v1, keys whsec_…) or ed25519 (v1a, private keys whsk_…, public
// keys whpk_…).
//
// The sender:
//
//	keys, err := signature.ParseKeys("whsec_…", "whsk_…")    // several while keys are rotated
//	header := keys.Sign(id, time.Now(), body)                // "v1,… v1a,…"
//
// The receiver:
//
//	verifier, err := signature.NewVerifier("whsec_…")
//	err = verifier.Verify(r.Header, body)                    // errors.Is(err, signature.ErrNoMatch) …
//
// Invariants: signatures are compared in constant time. An error never contains a key. A message outside the tolerated
// time is refused even if its signature is valid.
package signature
