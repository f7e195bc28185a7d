// Package signature signs and verifies messages as Standard Webhooks 1.0.0 says (standardwebhooks.com): the content
// "<id>.<timestamp>.<body>", signed with HMAC-SHA256 (v1, keys whsec_…) or ed25519 (v1a, private keys whsk_…, public
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
// Invariants: a signature is compared in constant time; an error never contains a key; a message outside of the
// tolerated time is refused even when its signature is right.
package signature
