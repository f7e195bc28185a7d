package executor

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/webhook"
)

// Callbacks makes and reads the tokens of callback URLs. A token names an operation and a webhook, cannot be guessed
// without the key, and is the same on every try, since the call it belongs to is the same. It is safe for concurrent
// use, and any replica with the key reads what another has made.
type Callbacks struct {
	base   string
	key    []byte
	former *FormerKey // nil: there is none
}

// FormerKey is a callback key that was in use before the present one, and that others may know who should not make
// callbacks. No token is made with it. One that was is good for operations of one namespace that began while it was in
// use, until they end.
type FormerKey struct {
	Key       []byte
	Namespace string
	// Began tells whether an operation that was accepted in a resource version (v1alpha1.OperationStatus.AcceptedVersion)
	// did. It is asked once the token is known to be made with Key, and must be safe for concurrent use.
	Began func(ctx context.Context, acceptedVersion string) (bool, error)
}

// Callback is what a token stands for.
type Callback struct {
	Namespace   string `json:"n"`
	Name        string `json:"o"` // of the Operation object
	OperationID string `json:"i"`
	WebhookID   string `json:"w"`
	// Purpose of the call.
	Purpose webhook.Purpose `json:"p,omitempty"`
}

// NewCallbacks returns the tokens of one key. base is what URLs start with; empty: URL returns none.
func NewCallbacks(base string, key []byte) *Callbacks {
	return &Callbacks{base: strings.TrimRight(base, "/"), key: key}
}

// Enabled tells whether somebody listens for callbacks.
func (c *Callbacks) Enabled() bool { return c.base != "" && len(c.key) > 0 }

// URL returns where the receiver of a call reports its outcome, empty if nobody listens there.
func (c *Callbacks) URL(op *v1alpha1.Operation, webhookID string, purpose webhook.Purpose) string {
	if !c.Enabled() {
		return ""
	}
	return c.base + "/callbacks/" + c.Token(Callback{
		Namespace: op.Namespace, Name: op.Name, OperationID: op.EffectiveID(), WebhookID: webhookID, Purpose: purpose,
	})
}

// Token returns the token of a callback.
func (c *Callbacks) Token(cb Callback) string {
	payload, err := json.Marshal(cb)
	if err != nil {
		panic(err) // strings always encode
	}
	return encoding.EncodeToString(payload) + "." + encoding.EncodeToString(sign(c.key, payload))
}

// Parse returns what a token stands for, or [operation.ErrUnknownCallback].
func (c *Callbacks) Parse(token string) (Callback, error) { return parse(token, c.key) }

// parseAny is Parse for tokens of the former key, too, and tells whether it is one.
func (c *Callbacks) parseAny(token string) (cb Callback, former bool, err error) {
	if cb, err = c.Parse(token); err == nil || c.former == nil {
		return cb, false, err
	}
	if cb, err = parse(token, c.former.Key); err == nil && cb.Namespace != c.former.Namespace {
		err = operation.ErrUnknownCallback
	}
	return cb, true, err
}

func parse(token string, key []byte) (Callback, error) {
	var cb Callback
	head, tail, _ := strings.Cut(token, ".")
	payload, err := encoding.DecodeString(head)
	if err != nil || len(key) == 0 {
		return cb, operation.ErrUnknownCallback
	}
	signature, err := encoding.DecodeString(tail)
	if err != nil || !hmac.Equal(signature, sign(key, payload)) {
		return cb, operation.ErrUnknownCallback
	}
	if err := json.Unmarshal(payload, &cb); err != nil {
		return cb, operation.ErrUnknownCallback
	}
	return cb, nil
}

var encoding = base64.RawURLEncoding

func sign(key, payload []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("fairlead callback v1\x00"))
	mac.Write(payload)
	return mac.Sum(nil)
}
