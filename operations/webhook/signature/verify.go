package signature

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Errors of Verify. Each error matches exactly one of them.
var (
	ErrMissingHeader = errors.New("missing webhook header")        // webhook-id, webhook-timestamp or webhook-signature
	ErrTimestamp     = errors.New("malformed webhook timestamp")   // not a number of seconds
	ErrTooOld        = errors.New("webhook timestamp too old")     // perhaps a replay
	ErrTooNew        = errors.New("webhook timestamp too new")     // the clocks differ
	ErrNoMatch       = errors.New("no matching webhook signature") // no signature matches any of the keys
	errTooMany       = fmt.Errorf("%w: too many to try", ErrNoMatch)
)

// tolerance bounds the difference between the timestamp and the receiver's clock.
const tolerance = 5 * time.Minute

// maxSignatures bounds the work that one message can cause.
const maxSignatures = 32

// Verifier verifies messages for a receiver. Its fields may be changed before the first use; afterwards it is safe for
// concurrent use.
type Verifier struct {
	Keys []Key            // accepted keys
	Now  func() time.Time // default time.Now
}

// NewVerifier returns a Verifier for keys in any form that ParseKey accepts.
func NewVerifier(keys ...string) (*Verifier, error) {
	v := &Verifier{}
	for i, text := range keys {
		key, err := ParseKey(text)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		v.Keys = append(v.Keys, key)
	}
	return v, nil
}

// Verify checks the signature headers against the body exactly as received. If it returns nil, the sender has one of
// the keys. Receivers should also remember webhook-id for five minutes, to refuse a replay.
func (v *Verifier) Verify(h http.Header, body []byte) error {
	id, stamp, signatures := h.Get(HeaderID), h.Get(HeaderTimestamp), h.Get(HeaderSignature)
	for name, value := range map[string]string{HeaderID: id, HeaderTimestamp: stamp, HeaderSignature: signatures} {
		if value == "" {
			return fmt.Errorf("%w: %s", ErrMissingHeader, name)
		}
	}
	if err := v.checkTime(stamp); err != nil {
		return err
	}
	content := signedContent(id, stamp, body)
	tried := 0
	for signature := range strings.FieldsSeq(signatures) {
		if tried++; tried > maxSignatures {
			return errTooMany
		}
		version, encoded, found := strings.Cut(signature, ",")
		if !found {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			continue
		}
		for _, key := range v.Keys {
			if key.version() == version && key.matches(content, raw) {
				return nil
			}
		}
	}
	return ErrNoMatch
}

func (v *Verifier) checkTime(stamp string) error {
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || seconds < 0 || seconds > 1<<40 {
		return fmt.Errorf("%w: not a number of seconds", ErrTimestamp)
	}
	now := time.Now
	if v.Now != nil {
		now = v.Now
	}
	switch at, current := time.Unix(seconds, 0), now(); {
	case current.Sub(at) > tolerance:
		return ErrTooOld
	case at.Sub(current) > tolerance:
		return ErrTooNew
	}
	return nil
}
