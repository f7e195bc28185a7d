package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Names of the headers.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

const (
	prefixHMAC    = "whsec_"
	prefixPrivate = "whsk_"
	prefixPublic  = "whpk_"
)

// ErrKey matches the error for every unusable key. The error describes the problem and never contains the key.
var ErrKey = errors.New("cannot use signing key")

// Key signs or verifies messages. It is immutable and safe for concurrent use.
type Key struct {
	secret  []byte             // v1
	private ed25519.PrivateKey // v1a; nil for a public key
	public  ed25519.PublicKey
}

// ParseKey parses a key. A whsec_ key is base64 of 16 to 128 bytes (the standard recommends 24 to 64). A whsk_ key is
// base64 of the 64 bytes of an ed25519 private key (seed and public key). A whpk_ key is base64 of the 32 bytes of a
// public key. Surrounding white space is ignored.
func ParseKey(text string) (Key, error) {
	text = strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(text, prefixHMAC):
		raw, err := decode(text[len(prefixHMAC):])
		if err != nil {
			return Key{}, err
		}
		if len(raw) < 16 || len(raw) > 128 {
			return Key{}, fmt.Errorf("%w: whsec_ stands before base64 of 16 to 128 bytes, this has %d", ErrKey, len(raw))
		}
		return Key{secret: raw}, nil
	case strings.HasPrefix(text, prefixPrivate):
		raw, err := decode(text[len(prefixPrivate):])
		if err != nil {
			return Key{}, err
		}
		if len(raw) != ed25519.PrivateKeySize {
			return Key{}, fmt.Errorf("%w: whsk_ stands before base64 of %d bytes, this has %d", ErrKey, ed25519.PrivateKeySize,
				len(raw))
		}
		private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		if !bytes.Equal(private, raw) { // signing with a wrong public half reveals the seed
			return Key{}, fmt.Errorf("%w: the public half of the whsk_ key does not belong to its seed", ErrKey)
		}
		return Key{private: private, public: private.Public().(ed25519.PublicKey)}, nil
	case strings.HasPrefix(text, prefixPublic):
		raw, err := decode(text[len(prefixPublic):])
		if err != nil {
			return Key{}, err
		}
		if len(raw) != ed25519.PublicKeySize {
			return Key{}, fmt.Errorf("%w: whpk_ stands before base64 of %d bytes, this has %d", ErrKey, ed25519.PublicKeySize,
				len(raw))
		}
		return Key{public: raw}, nil
	}
	return Key{}, fmt.Errorf("%w: it starts with none of whsec_, whsk_, whpk_", ErrKey)
}

func decode(text string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		if raw, err = base64.RawStdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("%w: it is not base64", ErrKey)
		}
	}
	return raw, nil
}

// CanSign reports whether the key can sign. A public key cannot.
func (k Key) CanSign() bool { return k.secret != nil || k.private != nil }

// String hides the key, so that logs cannot contain it.
func (k Key) String() string { return k.version() + " key" }

// GoString hides the key from %#v.
func (k Key) GoString() string { return k.String() }

func (k Key) version() string {
	if k.secret != nil {
		return "v1"
	}
	return "v1a"
}

func (k Key) sign(content []byte) []byte {
	if k.secret != nil {
		mac := hmac.New(sha256.New, k.secret)
		mac.Write(content)
		return mac.Sum(nil)
	}
	return ed25519.Sign(k.private, content)
}

func (k Key) matches(content, sig []byte) bool {
	if k.secret != nil {
		return hmac.Equal(sig, k.sign(content))
	}
	return len(sig) == ed25519.SignatureSize && ed25519.Verify(k.public, content, sig)
}

// Keys sign a message, each with its own signature, so that receivers can rotate keys.
type Keys []Key

// ParseKeys parses keys that can sign. The joined error names each unusable key by its position.
func ParseKeys(texts ...string) (Keys, error) {
	keys := make(Keys, 0, len(texts))
	var errs []error
	for i, text := range texts {
		key, err := ParseKey(text)
		if err == nil && !key.CanSign() {
			err = fmt.Errorf("%w: whpk_ keys can only verify", ErrKey)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("key %d: %w", i+1, err))
			continue
		}
		keys = append(keys, key)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return keys, nil
}

// Sign returns the value of the webhook-signature header: one signature per key, separated by spaces. The timestamp is
// at.Unix().
func (ks Keys) Sign(id string, at time.Time, body []byte) string {
	content := signedContent(id, strconv.FormatInt(at.Unix(), 10), body)
	var b strings.Builder
	for i, key := range ks {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(key.version())
		b.WriteByte(',')
		b.WriteString(base64.StdEncoding.EncodeToString(key.sign(content)))
	}
	return b.String()
}

func signedContent(id, timestamp string, body []byte) []byte {
	content := make([]byte, 0, len(id)+len(timestamp)+len(body)+2)
	content = append(content, id...)
	content = append(content, '.')
	content = append(content, timestamp...)
	content = append(content, '.')
	return append(content, body...)
}
