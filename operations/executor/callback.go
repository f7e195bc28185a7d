package executor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Callbacks makes and reads the tokens of callback URLs. A token names an operation and a webhook, cannot be guessed
// without the key, and is the same on every try, since the call it belongs to is the same. It is safe for concurrent
// use, and any replica with the key reads what another has made.
type Callbacks struct {
	base string
	key  []byte
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

// Parse returns what a token stands for, or [operations.ErrUnknownCallback].
func (c *Callbacks) Parse(token string) (Callback, error) {
	var cb Callback
	head, tail, _ := strings.Cut(token, ".")
	payload, err := encoding.DecodeString(head)
	if err != nil || len(c.key) == 0 {
		return cb, operations.ErrUnknownCallback
	}
	signature, err := encoding.DecodeString(tail)
	if err != nil || !hmac.Equal(signature, sign(c.key, payload)) {
		return cb, operations.ErrUnknownCallback
	}
	if err := json.Unmarshal(payload, &cb); err != nil {
		return cb, operations.ErrUnknownCallback
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
